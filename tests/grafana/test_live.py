"""Two short benches, watched by a real Prometheus: every panel and every rule has data."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import pytest
import yaml

from agentdyno.rig.dashboards import prometheus_command
from agentdyno.rig.environments.building import ensure
from agentdyno.rig.environments.environment import ROOT, adapter_environment
from agentdyno.rig.processes import fetch, free_port
from grafana.source.build import BOARDS
from tests.e2e.benches import Benches, wait_for

PROMETHEUS = shutil.which("prometheus")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.frameworks,
    pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed (Debian: apt install prometheus)"),
]
LOAD = ("--rate", "10", "--warmup", "1s", "--duration", "150s", "--cooldown", "0s", "--ttft", "15", "--tps", "2000")
# For the rates over four scrapes and for rules that build on rules, also on a machine that stands still for a while.
SETTLE_S = 70.0
PANEL_S = 20.0
CHOSEN = {
    "$__rate_interval": "20s",
    "$__interval": "20s",
    **dict.fromkeys(("$run", "$framework", "$scenario", "$namespace"), ".*"),
}
NAME = re.compile(r"\b(?:agentdyno_|run:|vllm:|process_|up\b)[\w:]*")


@dataclass
class Watched:
    """Prometheus, while the benches run."""

    url: str

    def get(self, path: str, **parameters: Any) -> Any:
        answer = json.loads(fetch(f"{self.url}/api/v1/{path}?{urlencode(parameters)}", 10.0))
        assert answer["status"] == "success", answer
        return answer["data"]

    def values(self, expr: str) -> list[float]:
        """The values of all series that a query gives now, but for those that are no number."""
        found = [float(series["value"][1]) for series in self.get("query", query=expr)["result"]]
        return [value for value in found if math.isfinite(value)]

    def rules(self) -> list[Any]:
        return [rule for group in self.get("rules")["groups"] for rule in group["rules"]]

    def all_recorded(self) -> bool:
        rules = self.rules()
        return bool(rules) and all(self.values(rule["name"]) for rule in rules if rule["type"] == "recording")


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    assert PROMETHEUS is not None
    folder = tmp_path_factory.mktemp("watched")
    for name in ("bare", "lightagent"):
        ensure(adapter_environment(ROOT / "adapters" / name))
    # The real configuration: its targets' folder is relative to it.
    shutil.copytree(ROOT / "grafana" / "prometheus", folder / "grafana" / "prometheus")
    observed = folder / "runs" / ".observe"
    observed.mkdir(parents=True)
    port = free_port()
    command = prometheus_command(
        PROMETHEUS, folder / "grafana" / "prometheus" / "prometheus.yml", folder / "data", port
    )
    benches = Benches(folder)
    with (folder / "prometheus.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            wait_for(lambda: _ready(url), "Prometheus")
            started = [benches.start(name, *LOAD, "--observe", str(observed)) for name in ("bare", "lightagent")]
            wait_for(lambda: len(list(observed.glob("*.json"))) == 2, "two benches under load", 120.0)
            for bench in started:
                threading.Thread(target=bench.process.communicate, daemon=True).start()
            watched = Watched(url)
            wait_for(watched.all_recorded, "a value of every recording rule", SETTLE_S)
            yield watched
            assert all(bench.process.poll() is None for bench in started), "the benches ended before the questions did"
        finally:
            benches.close()
            process.terminate()


def _ready(url: str) -> bool:
    try:
        fetch(f"{url}/-/ready", 1.0)
    except OSError:
        return False
    return True


def test_every_part_of_both_benches_is_scraped(watched: Watched) -> None:
    targets = [target for target in watched.get("targets")["activeTargets"] if target["labels"]["job"] == "agentdyno"]
    roles = sorted((target["labels"]["framework"], target["labels"]["role"]) for target in targets)
    assert roles == [(name, role) for name in ("bare", "lightagent") for role in ("backend", "host", "load", "rig")]
    assert {(target["labels"]["compared"], target["labels"]["rate"]) for target in targets} == {("yes", "10")}
    assert {target["health"] for target in targets} == {"up"}, [target["lastError"] for target in targets]
    assert all(target["discoveredLabels"]["__address__"].startswith("127.0.0.1:") for target in targets)


def test_both_that_make_trace_records_say_what_they_threw_away(watched: Watched) -> None:
    found = watched.get("query", query="sum by (framework, role) (agentdyno_spans_dropped_total)")["result"]
    said = {(one["metric"]["framework"], one["metric"]["role"], one["value"][1]) for one in found}
    assert said == {(name, role, "0") for name in ("bare", "lightagent") for role in ("host", "backend")}


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_every_panel_has_data_or_says_why_not(watched: Watched, board: Any) -> None:
    unexpected = []
    for panel in board.panels():
        for query in panel.queries:
            expr = query.expr
            for variable, value in CHOSEN.items():
                expr = expr.replace(variable, value)
            if panel.elsewhere is None:
                wait_for(lambda expr=expr: watched.values(expr), f"{panel.title}: {expr}", PANEL_S)
            elif watched.values(expr):
                unexpected.append(panel.title)
    assert unexpected == [], "has data after all: take its excuse away"


def test_every_variable_has_values(watched: Watched) -> None:
    names = {"run": 2, "framework": 2, "scenario": 1}
    for name, count in names.items():
        values = watched.get(f"label/{name}/values", **{"match[]": '{__name__=~"agentdyno_.+"}'})
        assert len(values) == count, values


def test_every_rule_is_healthy_and_has_data(watched: Watched) -> None:
    names = set(watched.get("label/__name__/values"))
    rules = watched.rules()
    written = [
        rule
        for file in (ROOT / "grafana" / "prometheus" / "rules").iterdir()
        for group in yaml.safe_load(file.read_text())["groups"]
        for rule in group["rules"]
    ]
    assert len(rules) == len(written)
    for rule in rules:
        assert rule["health"] == "ok", (rule["name"], rule.get("lastError"))
        if rule["type"] == "recording":
            assert watched.values(rule["name"]), rule["name"]
        else:
            asked = set(NAME.findall(rule["query"]))
            assert asked, rule["query"]
            assert asked <= names, (rule["name"], asked - names)


def test_the_tax_of_the_control_is_nothing_and_lightagents_is_something(watched: Watched) -> None:
    tax = "framework:agentdyno_cpu_tax_seconds_per_request:1h"
    assert watched.values(f'{tax}{{framework="bare"}}') == [0.0]
    (other,) = watched.values(f'{tax}{{framework="lightagent"}}')
    assert abs(other) > 0


def test_what_is_offered_is_what_was_asked_for(watched: Watched) -> None:
    """Once what a machine that stood still held up is 20 s ago."""

    def offered() -> bool:
        rates = watched.values("run:agentdyno_load_arrivals:rate20s")
        return len(rates) == 2 and all(rate == pytest.approx(10.0, rel=0.2) for rate in rates)

    wait_for(offered, "10 arrivals a second in both benches", 40.0)


def test_latency_has_exemplars_that_are_traces(watched: Watched) -> None:
    now = time.time()
    for metric in ("agentdyno_load_latency_seconds_bucket", "agentdyno_request_duration_seconds_bucket"):
        series = watched.get("query_exemplars", query=metric, start=now - 60, end=now)
        ids = {exemplar["labels"]["trace_id"] for each in series for exemplar in each["exemplars"]}
        assert ids, metric
        assert all(re.fullmatch("[0-9a-f]{32}", trace) for trace in ids)


def test_series_are_few(watched: Watched) -> None:
    """Labels are bounded: a bench is some hundred series, whatever number of requests it sends."""
    for role, most in (("host", 700), ("load", 200), ("rig", 40)):
        counts = watched.values(f'count by (run) ({{role="{role}", job="agentdyno"}})')
        assert counts
        assert max(counts) < most, (role, counts)
