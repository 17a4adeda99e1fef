"""Prometheus' configuration, rules and alerts, by promtool."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentdyno.contract.run import Reason
from agentdyno.rig.environments.environment import ROOT
from agentdyno.rig.profile import DIFFERENCE_PAGE

FOLDER = ROOT / "grafana" / "prometheus"
ALERTS = FOLDER / "rules" / "alerts.yml"
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (Debian: apt install prometheus)"
)


def rules(file: Path) -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(file.read_text())["groups"] for rule in group["rules"]]


def promtool(*arguments: str) -> None:
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_the_configuration_and_its_rules_are_valid() -> None:
    promtool("check", "config", str(FOLDER / "prometheus.yml"))


@needs_promtool
@pytest.mark.parametrize("file", sorted((FOLDER / "tests").glob("*.yml")), ids=lambda file: file.stem)
def test_rules_come_to_what_they_should(file: Path) -> None:
    promtool("test", "rules", str(file))


def test_every_alert_says_what_is_wrong_and_what_to_do() -> None:
    for rule in rules(ALERTS):
        assert rule["alert"].startswith("AgentDyno")
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert set(rule["annotations"]) == {"summary", "runbook"}
        assert rule["annotations"]["summary"].endswith("."), rule["alert"]
        assert rule["annotations"]["runbook"].endswith("."), rule["alert"]
        assert "{{ $labels." in rule["annotations"]["summary"]


def test_what_a_runbook_names_is_there() -> None:
    """Targets of make, options, reason codes, dashboards, files of a run folder."""
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^#:   ([a-z-]+) ", makefile, re.MULTILINE))
    options = set(re.findall(r"\b[A-Z][A-Z_]+\b", makefile.partition("\n.PHONY")[0]))
    readme = (ROOT / "README.md").read_text()
    titles = {json.loads(file.read_text())["title"] for file in (ROOT / "grafana" / "dashboards").iterdir()}
    for rule in rules(ALERTS):
        text = rule["annotations"]["runbook"]
        assert set(re.findall(r"make ([a-z-]+)", text)) <= targets, text
        assert set(re.findall(r"\(([a-z]+_[a-z_]+)\)", text)) <= {reason.value for reason in Reason}, text
        assert set(re.findall(r"\b([A-Z][A-Z_]+)\b", text)) - {"CPU", "GC", "LLM"} <= options, text
        assert {f"AgentDyno: {name}" for name in re.findall(r"the ([A-Z]\w+) dashboard", text)} <= titles, text
        for file in re.findall(r"[\w/-]+\.(?:parquet|log|html|json)", text):
            name = file.rpartition("/")[2]
            assert name in readme or name == DIFFERENCE_PAGE, file


def test_every_alert_is_unit_tested() -> None:
    cases = yaml.safe_load((FOLDER / "tests" / "alerts.yml").read_text())["tests"]
    fired = {case["alertname"] for test in cases for case in test["alert_rule_test"] if case["exp_alerts"]}
    assert fired == {rule["alert"] for rule in rules(ALERTS)}


def test_every_recording_rule_has_an_expectation() -> None:
    tests = yaml.safe_load((FOLDER / "tests" / "recording.yml").read_text())["tests"]
    asked = " ".join(case["expr"] for test in tests for case in test["promql_expr_test"] if case["exp_samples"])
    named = set(re.findall(r"\w+:\w+:\w+", asked))
    assert named == {rule["record"] for rule in rules(FOLDER / "rules" / "recording.yml")}


def test_recorded_names_say_level_metric_and_operation() -> None:
    for rule in rules(FOLDER / "rules" / "recording.yml"):
        assert rule["record"].count(":") == 2, rule["record"]
        assert rule["record"].split(":")[0] in {"run", "framework"}


def test_the_scrape_is_every_five_seconds_and_all_rules_are_read() -> None:
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    assert config["global"]["scrape_interval"] == "5s"
    assert {FOLDER / name for name in config["rule_files"]} == set((FOLDER / "rules").iterdir())
