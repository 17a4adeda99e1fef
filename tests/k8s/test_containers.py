"""The rendered chart really runs: in containers from our images, by the client that drives a cluster.

What is asserted of a run is what is asserted of one on a cluster: tests/cluster/finished_run.py.
Base, images, pods, probes, limits and names are real, on one machine; node and API are those of containers.py and
container_api.py. Without root, podman or mmdebstrap these tests are skipped.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import yaml

from agentdyno import __version__
from agentdyno.cluster.bench import bench
from agentdyno.cluster.profile import profile
from agentdyno.cluster.release import Place
from agentdyno.contract.adapter import find_variants
from agentdyno.rig.environments.environment import (
    ROOT,
    adapter_environment,
    lock_sha256,
    profiler_environment,
    rig_environment,
)
from agentdyno.rig.environments.frameworks import resolve
from agentdyno.rig.options import Words
from tests.cluster.finished_run import BUSY, FinishedRun
from tests.cluster.full_memory import FILL, LIMIT
from tests.k8s.conftest import KEY
from tests.k8s.container_api import NAMESPACE, RELEASE, ContainerCluster
from tests.k8s.containers import Node
from tests.k8s.engine import Engine, why_not
from tests.k8s.pods import COMPONENT, Object, of_kind, pods
from tests.k8s.programs import Programs

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200), pytest.mark.skipif(bool(why_not()), reason=why_not())]
PLACE = Place(RELEASE, NAMESPACE)
FRAMEWORK = "lightagent"
IMAGES = {
    "rig": (f"agentdyno/rig:{__version__}", rig_environment()),
    "mock": (f"agentdyno/mock:{__version__}", adapter_environment(ROOT / "adapters" / "bare")),
    "profiler": (f"agentdyno/profiler:{__version__}", profiler_environment()),
    "host": (f"agentdyno/host-{FRAMEWORK}:{__version__}", adapter_environment(ROOT / "adapters" / FRAMEWORK)),
}
PROMETHEUS = "localhost/agentdyno-test/prometheus:1"
GIVEN: Object = {
    "proof": {"key": KEY},
    "placement": {"ownNode": "off"},
    "collector": {"enabled": False},
    "tempo": {"enabled": False},
    "grafana": {"enabled": False},
    "prometheus": {"enabled": False, "scrapeInterval": "1s"},
    "sut": {"resources": {"cpu": "1", "memory": "512Mi"}},
}
every = pytest.mark.parametrize("image", IMAGES)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    folder = Path(tempfile.mkdtemp(prefix="agentdyno-"))
    with Engine(folder) as made:
        made.make_base()
        with ThreadPoolExecutor() as pool:
            list(pool.map(made.build, ("rig", "mock", "profiler", f"host {FRAMEWORK}")))
        yield made


@pytest.fixture
def cluster(
    engine: Engine, tools: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ContainerCluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    node = Node(engine, folder)
    with ContainerCluster(folder, node, tools, json.loads(json.dumps(GIVEN))) as made:
        monkeypatch.setenv("KUBECONFIG", str(made.kubeconfig))
        monkeypatch.setenv("HELM", str(made.helm))
        try:
            yield made
        finally:
            for name in list(node.started):
                node.remove(name)


def words(out: Path, **more: str) -> Words:
    given = {"rate": "20", "duration": "10s", "warmup": "2s", "cooldown": "1s", "workers": "2", "out": str(out)}
    return Words(framework=FRAMEWORK, **(given | more))


# images


def inside(engine: Engine, image: str, code: str) -> str:
    """What a program says that is run as a pod would run it."""
    confined = ("--read-only", "--no-healthcheck", "--read-only-tmpfs=false", "--cap-drop", "all", "--network", "none")
    return engine("run", "--rm", *confined, "--entrypoint", "python", IMAGES[image][0], "-c", code).stdout


@every
def test_an_image_is_labelled_and_unprivileged(engine: Engine, image: str) -> None:
    name, environment = IMAGES[image]
    (found,) = engine.json("image", "inspect", name)
    labels = found["Config"]["Labels"]
    assert labels["agentdyno.lock.sha256"] == lock_sha256(environment)
    assert labels["org.opencontainers.image.version"] == __version__
    assert found["Config"]["User"] == "10001:10001"
    assert found["Healthcheck"]["Test"][0] == "CMD"


@every
def test_an_image_has_code_and_nothing_that_makes_code(engine: Engine, image: str) -> None:
    code = (
        "import shutil, sys, importlib.util as u, pathlib, json;"
        "pyc = next(pathlib.Path('/opt/agentdyno/src/agentdyno/__pycache__').glob('__init__.*.pyc')).read_bytes();"
        "tools = [n for n in ('pip', 'pip3', 'gcc', 'cc', 'make', 'apt-get', 'ruff', 'uv') if shutil.which(n)];"
        "tools += [n for n in ('pip', 'setuptools', 'ensurepip', 'pytest', 'mypy') if u.find_spec(n)];"
        "link, prefix = pathlib.Path('/opt/agentdyno/venv').readlink(), pathlib.Path(sys.prefix).resolve();"
        "print(json.dumps([tools, int.from_bytes(pyc[4:8], 'little'), str(link), str(prefix)]))"
    )
    tools, flags, link, prefix = json.loads(inside(engine, image, code))
    assert tools == []
    assert flags == 0b01  # by hash, never checked
    assert prefix == f"/opt/agentdyno/{link}"  # the one copy that there is


@every
def test_an_image_says_where_nothing_came_from(engine: Engine, image: str, tmp_path: Path) -> None:
    """Neither the settings of pip nor the sources of apt that it was built with."""
    code = (
        "import pathlib; print([str(p) for f in ('/etc/pip.conf', '/etc/apt/sources.list', '/etc/apt/sources.list.d/*',"
        "'/etc/apt/apt.conf.d/*') for p in pathlib.Path('/').glob(f[1:]) if p.is_file() and p.stat().st_size])"
    )
    assert inside(engine, image, code).strip() == "[]"


@pytest.mark.parametrize("image", ["rig", "profiler"])
def test_what_serves_nothing_can_be_started_by_its_own_check(engine: Engine, image: str) -> None:
    (found,) = engine.json("image", "inspect", IMAGES[image][0])
    kind, python, option, code = found["Healthcheck"]["Test"]
    assert (kind, python, option) == ("CMD", "python", "-c")
    assert inside(engine, image, code) == ""


def test_a_server_is_healthy_by_its_own_check(engine: Engine) -> None:
    name = engine("run", "--detach", "--health-interval", "disable", IMAGES["mock"][0]).stdout.strip()
    try:
        deadline = time.monotonic() + 60
        while engine("healthcheck", "run", name, check=False).returncode:
            assert time.monotonic() < deadline
            time.sleep(0.5)
    finally:
        engine("rm", "--force", "--time", "0", name)


# a run


def target_file(objects: list[Object]) -> None:
    """Pods from a file instead of from the API, which Debian's Prometheus cannot ask; what it learns of them is the
    same, and the rendered rules make of it what they make of the API's.
    """
    known = [
        {
            "targets": [f"{RELEASE}-{pod.component}:{port['containerPort']}"],
            "labels": {
                "__meta_kubernetes_pod_container_port_name": port["name"],
                **{f"__meta_kubernetes_pod_label_{re.sub('[^a-zA-Z0-9]', '_', k)}": v for k, v in pod.labels.items()},
            },
        }
        for pod in pods(objects)
        if f"{RELEASE}-{pod.component}" in of_kind(objects, "Service")
        for container in pod.containers
        for port in container.get("ports", [])
    ]
    data = of_kind(objects, "ConfigMap")[f"{RELEASE}-prometheus"]["data"]
    config = yaml.safe_load(data["prometheus.yml"])
    (job,) = (job for job in config["scrape_configs"] if job.pop("kubernetes_sd_configs", None))
    job["file_sd_configs"] = [{"files": ["/etc/agentdyno/targets.json"], "refresh_interval": "1s"}]
    data |= {"prometheus.yml": yaml.safe_dump(config), "targets.json": json.dumps(known)}


def test_a_run_in_containers_is_a_run(engine: Engine, cluster: ContainerCluster, tmp_path: Path) -> None:
    prometheus = shutil.which("prometheus")
    if prometheus is not None:
        name, _, tag = PROMETHEUS.partition(":")
        engine.build_with(PROMETHEUS, Path(prometheus))
        cluster.given["prometheus"] |= {"enabled": True, "image": {"repository": name, "tag": tag}}
        cluster.adapt = target_file
    code = bench(words(tmp_path / "runs", duration="30s"), PLACE)
    run = FinishedRun.only(tmp_path / "runs")
    run.must_be_valid(code, but_for=BUSY)  # other tests run beside it
    run.must_be_whole(arrivals=660, workers=2)
    run.must_be_made_of_this_checkout(FRAMEWORK)
    assert image_id(engine, IMAGES["host"][0]) in run.image_id("sut", "host")
    run.must_not_have_met_its_limits(cpu="1", memory="512Mi")
    exit_code, said = cluster.node.run_hook(f"{RELEASE}-check")  # helm test
    assert exit_code == 0, said
    if prometheus is None:
        pytest.skip("all but Prometheus was seen: the package prometheus is not installed")
    seen = run.must_be_seen_by(lambda query: ask(engine, cluster, query))
    assert {(labels["role"], labels["instance"]) for labels in seen} == {  # by its Service each
        ("host", f"{RELEASE}-sut:8000"),
        ("backend", f"{RELEASE}-backend:8001"),
        ("generator", f"{RELEASE}-load-master:9646"),
    }


def image_id(engine: Engine, name: str) -> str:
    (inspected,) = engine.json("image", "inspect", name)
    return inspected["Id"]


def ask(engine: Engine, cluster: ContainerCluster, query: str) -> list[Any]:
    (pod,) = (pod for pod in cluster.node.started.values() if pod.name.startswith(f"{RELEASE}-prometheus"))
    said = engine.ask(f"http://{pod.ip}:9090/api/v1/query?{urlencode({'query': query})}")
    assert said is not None
    return json.loads(said)["data"]["result"]


@pytest.mark.skipif(not os.environ.get("AGENTDYNO_ALL_IMAGES"), reason="it takes minutes: make test-images")
@pytest.mark.parametrize("framework", sorted(find_variants(ROOT / "adapters")))
def test_every_frameworks_image_runs(engine: Engine, cluster: ContainerCluster, tmp_path: Path, framework: str) -> None:
    adapter, _ = resolve(framework)
    if (image := f"host-{adapter.path.name}") != f"host-{FRAMEWORK}":
        engine.build(f"host {adapter.path.name}")
    code = bench(replace(words(tmp_path / "runs", rate="2", workers="1"), framework=framework), PLACE)
    run = FinishedRun.only(tmp_path / "runs")
    run.must_be_valid(code, but_for=BUSY)
    run.must_be_whole(arrivals=26, workers=1)
    run.must_be_made_of_this_checkout(framework)
    assert image_id(engine, f"agentdyno/{image}:{__version__}") in run.image_id("sut", "host")


def test_a_profiled_run_in_containers_has_the_heap_of_its_host(cluster: ContainerCluster, tmp_path: Path) -> None:
    code = profile(words(tmp_path / "runs", rate="10", workers="1"), PLACE, "5s", "off")
    run = FinishedRun.only(tmp_path / "runs")
    run.must_be_valid(code, but_for=BUSY)
    run.must_be_made_of_this_checkout(FRAMEWORK)
    run.must_have_its_hosts_heap()


# limits


def test_a_host_at_its_cpu_limit_is_noted(cluster: ContainerCluster, tmp_path: Path) -> None:
    cluster.given["sut"] = {"resources": {"cpu": "100m", "memory": "512Mi"}}
    bench(words(tmp_path / "runs", rate="60", duration="5s"), PLACE)
    FinishedRun.only(tmp_path / "runs").must_be_throttled_at("100m", "512Mi")


def test_a_host_that_is_killed_at_its_memory_limit_makes_the_run_invalid(
    cluster: ContainerCluster, tmp_path: Path
) -> None:
    cluster.given["sut"] = {"resources": {"cpu": "1", "memory": LIMIT}}
    filled: list[str] = []

    def fill(found: list[Object]) -> None:
        load = [pod for pod in found if pod["metadata"]["labels"][COMPONENT].startswith("load-")]
        if len(load) == 3 and not filled:
            (sut,) = (p["metadata"]["name"] for p in found if p["metadata"]["labels"][COMPONENT] == "sut")
            filled.append(sut)
            cluster.node.exec(sut, "host", [*FILL])

    cluster.on_look = fill
    code = bench(words(tmp_path / "runs"), PLACE)
    assert filled
    FinishedRun.only(tmp_path / "runs").must_be_killed_at(code, "1", LIMIT)
