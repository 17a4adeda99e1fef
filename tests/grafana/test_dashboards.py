"""The dashboards' JSON is what their source makes, and every panel says what it is."""

import json
import re
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.models.dashboard import Dashboard

from agentdyno.backends.mock_llm.stats import Meter
from agentdyno.rig.environments.environment import ROOT
from grafana.source.build import BOARDS, FOLDER, TAG, loaded, text_of
from grafana.source.panel import CLUSTER_ONLY, VLLM_ONLY, Board, Kind

# Of Grafana's units, those that are base units or say what is counted.
UNITS = {"s", "bytes", "percentunit", "reqps", "ops", "cps", "none", "string"}


def panels(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in document["panels"] if panel["type"] != "row"]


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_the_json_is_up_to_date(board: Board) -> None:
    assert (FOLDER / f"{board.uid}.json").read_text(encoding="utf-8") == text_of(board), "make dashboards-json"


def test_there_is_no_other_dashboard() -> None:
    assert {file.stem for file in FOLDER.iterdir()} == {board.uid for board in BOARDS}
    assert [board.title for board in BOARDS] == [
        f"AgentDyno: {name}" for name in ("Run", "Compare", "LLM backend", "Load generator", "Cluster")
    ]


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_it_is_what_grafanas_schema_has(board: Board) -> None:
    """Read by the SDK's types and written again nothing is lost or added."""
    document = loaded(board)
    again = json.loads(json.dumps(Dashboard.from_json(document), default=lambda part: part.to_json()))
    for part in ("uid", "title", "templating", "time", "links", "tags"):
        assert again[part] == document[part]
    for before, after in zip(document["panels"], again["panels"], strict=True):
        assert {key: after.get(key) for key in before if key != "targets"} == {
            key: value for key, value in before.items() if key != "targets"
        }


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_every_panel_has_a_title_a_description_a_unit_and_a_place(board: Board) -> None:
    document = loaded(board)
    shown = panels(document)
    assert len(shown) == len(board.panels())
    assert len({panel["id"] for panel in document["panels"]}) == len(document["panels"])
    for panel in shown:
        assert panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, panel["title"]
        assert panel["targets"], panel["title"]
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
    places = [(p["gridPos"]["x"] + dx, p["gridPos"]["y"] + dy) for p in shown
              for dx in range(p["gridPos"]["w"]) for dy in range(p["gridPos"]["h"])]  # fmt: skip
    assert len(places) == len(set(places)), "panels overlap"


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_what_is_chosen_is_asked_for(board: Board) -> None:
    """Every query heeds the board's variables, and uses no others."""
    names = {variable.name for variable in board.variables}
    for panel in board.panels():
        for query in panel.queries:
            used = set(re.findall(r"\$(\w+)", query.expr)) - {"__rate_interval", "__interval"}
            assert used <= names, panel.title
            assert used or "node" in query.expr, panel.title
    assert TAG in loaded(board)["tags"]
    if board.uid != "agentdyno-cluster":
        assert names == {"run", "framework", "scenario"}


def test_only_a_cluster_or_vllm_excuses_a_panel() -> None:
    for board in BOARDS:
        reasons = {panel.elsewhere for panel in board.panels()}
        assert reasons <= {None, CLUSTER_ONLY, VLLM_ONLY}
        assert (reasons == {CLUSTER_ONLY}) is (board.uid == "agentdyno-cluster")


def test_what_is_per_request_is_over_good_answers_alone() -> None:
    """Under overload most requests are rejected and call no LLM: over all of them a framework seems to do less."""
    (compare,) = (board for board in BOARDS if board.uid == "agentdyno-compare")
    shown = {panel.title: panel.queries for panel in compare.panels()}
    for title in ("LLM calls per request", "Tokens per request"):
        (query,) = shown[title]
        (requests,) = re.findall(r"\bagentdyno_requests_total\{(.*?)\}", query.expr)
        assert 'outcome="ok"' in requests.split(", "), title
        calls, _, _ = query.expr.partition(" / ")
        assert "outcome" not in calls, title


def test_only_what_may_be_compared_is_and_only_with_its_like() -> None:
    """Every figure of the Compare board is of one scenario and backend at one rate, and says so."""
    (compare,) = (board for board in BOARDS if board.uid == "agentdyno-compare")
    for panel in compare.panels():
        for query in panel.queries:
            if panel.kind is Kind.BARS:
                assert all(f"{{{{{name}}}}}" in query.legend for name in ("framework", "scenario", "backend", "rate"))
                kept = re.findall(r"by \(([\w, ]+)\)", query.expr)
                assert all(by.startswith("framework, scenario, backend, rate") for by in kept), panel.title
            if panel.kind is not Kind.TABLE and "framework:" not in query.expr:  # the rules' own tests hold these
                asked = re.findall(r"\w\{(.*?)\}", query.expr)
                assert asked, panel.title
                assert all('compared="yes"' in selector.split(", ") for selector in asked), panel.title


def test_the_columns_of_a_heat_map_do_not_overlap() -> None:
    """Four scrapes at least, and each answer in one column."""
    maps = [panel for board in BOARDS for panel in panels(loaded(board)) if panel["type"] == "heatmap"]
    assert len(maps) == 3
    for panel in maps:
        (target,) = panel["targets"]
        assert target["interval"] == "20s"
        assert "[$__interval]" in target["expr"]
        assert "20 s or more" in panel["description"]


def test_where_the_first_bucket_holds_all_the_mean_comes_first_and_the_bound_is_said() -> None:
    (board,) = (board for board in BOARDS if board.uid == "agentdyno-llm-backend")
    shown = {panel.title: panel for panel in board.panels()}
    served = Meter("m").exposition(waiting=0)
    for title, metric in (
        ("Queue", "vllm:request_queue_time_seconds"),
        ("Whole call", "vllm:e2e_request_latency_seconds"),
    ):
        first = re.search(rf'{metric}_bucket{{le="([\d.]+)"', served)
        assert first is not None
        assert f"{float(first[1]) * 1000:g} ms" in shown[title].description
        mean, *_ = shown[title].queries
        assert mean.legend == "mean"
        assert f"{metric}_sum" in mean.expr
        assert f"{metric}_count" in mean.expr


def test_the_hosts_memory_is_there_on_a_cluster_too() -> None:
    """Only a rig on one machine serves agentdyno_process_*; the pod of a host says its own size."""
    shown = {panel.title: panel.queries for board in BOARDS for panel in board.panels()}
    for title in ("Host memory", "Memory, peak"):
        (query,) = shown[title]
        outside, _, own = query.expr.partition(" or ")
        assert own == outside.replace("agentdyno_process_", "process_"), title
        assert " by (" in own, title  # else both are shown where both are, for their instances differ


def test_latency_leads_to_traces_and_memory_to_the_heap() -> None:
    shown = {panel["title"]: panel for panel in panels(loaded(BOARDS[0]))}
    for title in ("Latency p99", "Latency, heat map", "Latency percentiles", "Phases, p99"):
        (link,) = shown[title]["fieldConfig"]["defaults"]["links"]
        assert "/explore" in link["url"]
        assert "tempo" in link["url"]
        assert "${run:regex}" in link["url"]
    (link,) = shown["Host memory, its own view"]["fieldConfig"]["defaults"]["links"]
    assert link["url"].endswith("/debug/pprof/heap")
    for title in ("Latency, heat map", "Latency percentiles"):
        assert shown[title]["targets"][0]["exemplar"]


def test_compose_listens_on_loopback_alone_and_pins_its_images() -> None:
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    assert set(services) == {"prometheus", "grafana", "tempo", "collector"}
    for service in services.values():
        assert re.fullmatch(r"docker\.io/[\w./-]+:v?\d+\.\d+\.\d+@sha256:[0-9a-f]{64}", service["image"])
        assert service["network_mode"] == "host"
        assert "ports" not in service
    assert "--web.listen-address=127.0.0.1:9090" in services["prometheus"]["command"]
    grafana = services["grafana"]["environment"]
    assert grafana["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"
    assert grafana["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
    assert grafana["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert not [name for name in grafana if "PASSWORD" in name]
    for name in ("compose.yaml", "grafana/tempo.yaml", "grafana/prometheus/prometheus.yml"):
        assert "0.0.0.0" not in (ROOT / name).read_text()


def test_what_compose_mounts_is_there() -> None:
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    mounts = [mount.split(":")[0] for service in services.values() for mount in service.get("volumes", ())]
    for mount in mounts:
        if mount.startswith("./") and not mount.startswith("./runs"):
            assert (ROOT / mount).exists(), mount


def test_the_datasources_are_those_that_links_name() -> None:
    file = ROOT / "grafana" / "provisioning" / "datasources" / "agentdyno.yaml"
    sources = {source["uid"]: source for source in yaml.safe_load(file.read_text())["datasources"]}
    assert set(sources) == {"prometheus", "tempo"}
    (exemplars,) = sources["prometheus"]["jsonData"]["exemplarTraceIdDestinations"]
    assert exemplars == {"name": "trace_id", "datasourceUid": "tempo"}
    tempo = yaml.safe_load((ROOT / "grafana" / "tempo.yaml").read_text())
    assert sources["tempo"]["url"].endswith(f":{tempo['server']['http_listen_port']}")
    collector = (ROOT / "otel" / "collector.yaml").read_text()
    assert tempo["distributor"]["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"] in collector
