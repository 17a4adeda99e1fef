"""The collector's configuration, as far as it can be checked without a collector."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentdyno.rig.environments.environment import ROOT

FILE = ROOT / "otel" / "collector.yaml"
VARIABLE = re.compile(r"\$\{env:([A-Z_]+)(?::-([^}]*))?\}")
KINDS = ("receivers", "processors", "exporters")


def substituted(text: str, environment: dict[str, str]) -> Any:
    """As the collector reads it: variables first, then YAML."""
    return yaml.safe_load(VARIABLE.sub(lambda found: environment.get(found[1], found[2] or ""), text))


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    return substituted(FILE.read_text(), {})


def strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.values() for text in strings(item)]
    if isinstance(value, list):
        return [text for item in value for text in strings(item)]
    return [value] if isinstance(value, str) else []


def test_every_variable_has_a_default() -> None:
    found = VARIABLE.findall(FILE.read_text())
    assert found
    assert all(default for _, default in found)
    assert "${" not in VARIABLE.sub("", FILE.read_text())


def test_what_a_pipeline_uses_is_defined_and_what_is_defined_is_used(config: dict[str, Any]) -> None:
    pipelines = config["service"]["pipelines"]
    used = {kind: {name for p in pipelines.values() for name in p.get(kind, [])} for kind in KINDS}
    connectors = set(config["connectors"])
    assert used["receivers"] == set(config["receivers"]) | connectors
    assert used["exporters"] == set(config["exporters"]) | connectors
    assert used["processors"] == set(config["processors"])
    assert set(config["service"]["extensions"]) == set(config["extensions"])


def test_a_connector_joins_two_pipelines_of_the_right_signals(config: dict[str, Any]) -> None:
    pipelines = config["service"]["pipelines"]

    def at(kind: str, name: str) -> list[str]:
        return [pipeline.split("/")[0] for pipeline, parts in pipelines.items() if name in parts[kind]]

    assert (at("exporters", "spanmetrics"), at("receivers", "spanmetrics")) == (["traces"], ["metrics"])
    assert (at("exporters", "forward"), at("receivers", "forward")) == (["traces"], ["traces"])


def test_memory_is_limited_first_and_batches_are_made_last(config: dict[str, Any]) -> None:
    pipelines = config["service"]["pipelines"]
    for pipeline in pipelines.values():
        if "otlp" in pipeline["receivers"]:
            assert pipeline["processors"][0] == "memory_limiter"
        if "batch" in pipeline["processors"]:
            assert pipeline["processors"][-1] == "batch"
    assert "tail_sampling" not in pipelines["traces/all"]["processors"]


def test_errors_and_the_slowest_are_kept(config: dict[str, Any]) -> None:
    policies = {policy["type"]: policy for policy in config["processors"]["tail_sampling"]["policies"]}
    assert policies["status_code"]["status_code"]["status_codes"] == ["ERROR"]
    assert policies["latency"]["latency"]["threshold_ms"] == 1000
    assert 0 < policies["probabilistic"]["probabilistic"]["sampling_percentage"] <= 100
    assert all(policy["type"] in policy for policy in policies.values())


def test_it_listens_and_sends_on_loopback_unless_told_otherwise(config: dict[str, Any]) -> None:
    addresses = [text for text in strings(config) if re.fullmatch(r"[^ ]+:\d+", text)]
    assert len(addresses) == 6
    assert all(address.startswith("127.0.0.1:") for address in addresses)
    assert len(set(addresses)) == len(addresses)


def test_it_can_be_told_otherwise() -> None:
    told = {"OTLP_HTTP_LISTEN": "0.0.0.0:4318", "TEMPO_ENDPOINT": "tempo:4317", "TEMPO_INSECURE": "false"}
    found = substituted(FILE.read_text(), told)
    assert found["receivers"]["otlp"]["protocols"]["http"]["endpoint"] == "0.0.0.0:4318"
    assert found["exporters"]["otlp/tempo"]["endpoint"] == "tempo:4317"
    assert found["exporters"]["otlp/tempo"]["tls"]["insecure"] is False


def test_the_metrics_dimensions_are_ours_and_have_few_values(config: dict[str, Any]) -> None:
    conventions = Path(ROOT / "otel" / "CONVENTIONS.md").read_text()
    spanmetrics = config["connectors"]["spanmetrics"]
    names = [dimension["name"] for dimension in spanmetrics["dimensions"]]
    names += spanmetrics["resource_metrics_key_attributes"]
    assert all(f"`{name}`" in conventions for name in names)
    assert not {"agentdyno.run.id", "trace_id", "span_id"} & set(names)
