"""What a pod reads from a ConfigMap is there as a kubelet mounts it: links, and hidden folders that hold the files."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.k8s.conftest import CASES, Objects
from tests.k8s.containers import lay_out
from tests.k8s.pods import of_kind, pods


@pytest.mark.parametrize("case", CASES)
def test_whatever_is_named_in_a_mounted_folder_is_files_and_nothing_else(
    rendered: Callable[[str], Objects], case: str, tmp_path: Path
) -> None:
    """By commands and configurations. As in a program, a star in a pattern finds hidden names too."""
    configs = of_kind(rendered(case), "ConfigMap")
    seen = set()
    for pod in pods(rendered(case)):
        volumes = {v["name"]: configs[v["configMap"]["name"]]["data"] for v in pod.spec["volumes"] if "configMap" in v}
        for name, data in volumes.items():
            lay_out(tmp_path / pod.component / name, data)
        for container in pod.containers:
            said = [*container.get("command", []), *container.get("args", [])]
            said += [text for data in volumes.values() for text in data.values()]
            for mount in (m for m in container.get("volumeMounts", []) if m["name"] in volumes):
                folder = tmp_path / pod.component / mount["name"]
                named = re.findall(rf"{re.escape(mount['mountPath'])}/([\w.*-]+)", "\n".join(said))
                named += [mount["subPath"]] if "subPath" in mount else []
                for pattern in named:
                    found = list(folder.glob(pattern))
                    assert found, (pod.owner, pattern)
                    assert all(path.is_file() for path in found), (pod.owner, pattern, found)
                assert named, (pod.owner, mount)
                seen.add(pod.component)
    observing = {"collector", "tempo", "prometheus", "grafana"} if case != "existing-observability" else set()
    assert seen == {"check"} | observing
