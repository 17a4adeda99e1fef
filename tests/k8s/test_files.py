"""What the chart has copies of, because helm reads nothing outside it, is what it is a copy of."""

import tomllib

import yaml

from agentdyno import __version__
from agentdyno.rig.environments.environment import ROOT

FILES = ROOT / "k8s" / "chart" / "files"


def test_the_collector_has_the_projects_configuration() -> None:
    assert (FILES / "collector.yaml").read_text() == (ROOT / "otel" / "collector.yaml").read_text(), "make chart-files"


def test_frameworks_are_those_of_the_adapters() -> None:
    found = {}
    for file in (ROOT / "adapters").glob("*/adapter.toml"):
        for variant in tomllib.loads(file.read_text())["variant"]:
            if "entry" in variant:
                env = {"env": variant["env"]} if variant.get("env") else {}
                found[variant["name"]] = {"adapter": file.parent.name, **env}
    assert yaml.safe_load((FILES / "frameworks.yaml").read_text()) == found, "make chart-files"


def test_dashboards_and_rules_are_the_projects() -> None:
    for copies, originals, pattern in (
        (FILES / "dashboards", ROOT / "grafana" / "dashboards", "*.json"),
        (FILES / "rules", ROOT / "grafana" / "prometheus" / "rules", "*.y*ml"),
    ):
        ours = {file.name: file.read_text() for file in copies.glob(pattern)}
        assert ours == {file.name: file.read_text() for file in originals.glob(pattern)}, "make chart-files"


def test_versions_are_one() -> None:
    chart = yaml.safe_load((FILES.parent / "Chart.yaml").read_text())
    assert chart["apiVersion"] == "v2"
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)
