"""The collector's configuration against the settings that the pinned collector documents: it refuses any other."""

import re
from typing import Any

import pytest
import yaml

from agentdyno.rig.environments.environment import ROOT
from tests.otel.test_collector import FILE, substituted

# From the components' documentation and `mapstructure` names at this release. None: any value that is no mapping.
# `aggregation_cardinality_limit` came with 0.124.0: an older collector does not start with this configuration.
RELEASE = "0.130.0"
_GRPC_CLIENT = ("endpoint", "compression", "keepalive", "wait_for_ready", "headers", "balancer_name", "authority")
_OTLP_EXPORTER = {
    **dict.fromkeys(_GRPC_CLIENT),
    "timeout": None,
    "tls": dict.fromkeys(
        ("insecure", "insecure_skip_verify", "ca_file", "cert_file", "key_file", "server_name_override")
    ),
    "sending_queue": dict.fromkeys(("enabled", "num_consumers", "queue_size", "sizer", "block_on_overflow", "storage")),
    "retry_on_failure": dict.fromkeys(
        ("enabled", "initial_interval", "randomization_factor", "multiplier", "max_interval", "max_elapsed_time")
    ),
}
_POLICY = {
    **dict.fromkeys(("name", "type")),
    "latency": dict.fromkeys(("threshold_ms", "upper_threshold_ms")),
    "status_code": dict.fromkeys(("status_codes",)),
    "probabilistic": dict.fromkeys(("hash_salt", "sampling_percentage")),
}
_DIMENSION = dict.fromkeys(("name", "default"))
KNOWN: dict[str, Any] = {
    "receivers/otlp": {
        "protocols": {
            "grpc": dict.fromkeys(("endpoint", "max_recv_msg_size_mib", "max_concurrent_streams", "include_metadata")),
            "http": dict.fromkeys(("endpoint", "max_request_body_size", "include_metadata", "traces_url_path")),
        }
    },
    "processors/memory_limiter": dict.fromkeys(
        ("check_interval", "limit_mib", "spike_limit_mib", "limit_percentage", "spike_limit_percentage")
    ),
    "processors/tail_sampling": {
        **dict.fromkeys(("decision_wait", "num_traces", "expected_new_traces_per_sec")),
        "decision_cache": dict.fromkeys(("sampled_cache_size", "non_sampled_cache_size")),
        "policies": [_POLICY],
    },
    "processors/batch": dict.fromkeys(
        ("timeout", "send_batch_size", "send_batch_max_size", "metadata_keys", "metadata_cardinality_limit")
    ),
    "connectors/forward": {},
    "connectors/spanmetrics": {
        **dict.fromkeys(("namespace", "aggregation_temporality", "exclude_dimensions", "resource_metrics_cache_size")),
        **dict.fromkeys(("metrics_flush_interval", "metrics_expiration", "aggregation_cardinality_limit")),
        "resource_metrics_key_attributes": [None],
        "histogram": {
            **dict.fromkeys(("disable", "unit")),
            "explicit": {"buckets": [None]},
            "exponential": {"max_size": None},
        },
        "dimensions": [_DIMENSION],
        "calls_dimensions": [_DIMENSION],
    },
    "exporters/otlp": _OTLP_EXPORTER,
    "exporters/prometheus": dict.fromkeys(
        ("endpoint", "namespace", "const_labels", "send_timestamps", "metric_expiration", "enable_open_metrics")
    ),
    "extensions/health_check": dict.fromkeys(("endpoint", "path")),
}
# What the spanmetrics connector gives every metric by itself; naming one of them again is refused.
RESERVED_DIMENSIONS = {"service.name", "span.name", "span.kind", "status.code"}


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    return substituted(FILE.read_text(), {})


def unknown(value: Any, known: Any, path: str) -> list[str]:
    """The places where the configuration says what the collector does not know."""
    if isinstance(value, dict):
        if not isinstance(known, dict):
            return [path]
        lacking = [f"{path}/{key}" for key in value if key not in known]
        for key in value.keys() & known.keys():
            lacking += unknown(value[key], known[key], f"{path}/{key}")
        return lacking
    if isinstance(value, list):
        of_each = known[0] if isinstance(known, list) else known
        return [it for number, item in enumerate(value) for it in unknown(item, of_each, f"{path}/{number}")]
    return [] if known is None else [path]


def test_every_setting_is_one_that_the_pinned_collector_has(config: dict[str, Any]) -> None:
    found = []
    for kind in ("receivers", "processors", "connectors", "exporters", "extensions"):
        for name, settings in config[kind].items():
            component = f"{kind}/{name.partition('/')[0]}"
            assert component in KNOWN, component
            found += unknown(settings, KNOWN[component], f"{kind}/{name}")
    assert found == []
    assert set(config) == {"receivers", "processors", "connectors", "exporters", "extensions", "service"}
    assert set(config["service"]) == {"extensions", "pipelines"}


def test_a_setting_that_it_does_not_have_is_found() -> None:
    batch = KNOWN["processors/batch"]
    assert unknown({"timeout": "1s", "size": 1}, batch, "batch") == ["batch/size"]
    assert unknown({"timeout": {"s": 1}}, batch, "batch") == ["batch/timeout"]
    policies = KNOWN["processors/tail_sampling"]["policies"]
    assert unknown([{"name": "slow", "latency": {"ms": 1}}], policies, "policies") == ["policies/0/latency/ms"]


def test_no_dimension_is_named_twice(config: dict[str, Any]) -> None:
    names = [dimension["name"] for dimension in config["connectors"]["spanmetrics"]["dimensions"]]
    assert len(set(names)) == len(names)
    assert not RESERVED_DIMENSIONS & set(names)


def test_the_collectors_that_are_started_are_of_that_release() -> None:
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["collector"]["image"]
    chart = yaml.safe_load((ROOT / "k8s" / "chart" / "values.yaml").read_text())["collector"]["image"]["tag"]
    assert re.search(rf"-contrib:{re.escape(RELEASE)}@sha256:", compose)
    assert chart.startswith(f"{RELEASE}@sha256:")


def test_composes_and_charts_images_are_the_same_and_have_digests() -> None:
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    values = yaml.safe_load((ROOT / "k8s" / "chart" / "values.yaml").read_text())
    assert set(services) == {"prometheus", "grafana", "tempo", "collector"}
    for name, service in services.items():
        image = values[name]["image"]
        assert service["image"] == f"docker.io/{image['repository']}:{image['tag']}"
        assert re.fullmatch(r"docker\.io/[a-z/-]+:v?\d+\.\d+\.\d+@sha256:[0-9a-f]{64}", service["image"])
