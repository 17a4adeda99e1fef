"""The declared metrics stand where they say, in a full summary and in an empty one."""

import pytest

from agentdyno.analysis.metrics import METRICS, Metric, rounded
from agentdyno.contract.run import Verdict
from agentdyno.contract.summary import (
    Framework,
    Gc,
    Generator,
    Ledger,
    LoopLag,
    Memory,
    SpanLedger,
    Summary,
)
from tests.golden.run import GoldenRun


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Summary:
    return GoldenRun().summary(tmp_path_factory.mktemp("run"))


EMPTY = Summary(
    run_id="empty",
    framework=Framework("x", None, "default", "llm"),
    scenario="chain",
    workload_hash="",
    backend={},
    load=None,
    latency_ms=None,
    goodput_rps=None,
    cpu_ms_per_request=None,
    cold_start_ms=None,
    memory_mb=Memory(),
    gc=Gc(),
    loop_lag_ms=LoopLag(),
    phases_ms={},
    ledger=Ledger(),
    spans=SpanLedger(),
    generator=Generator(),
    overloaded=None,
    verdict=Verdict(True),
)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_every_metric_is_there(full: Summary, metric: Metric) -> None:
    value = metric.value(full)
    assert isinstance(value, float)
    assert metric.text(full).startswith(rounded(value))
    assert metric.text(full).endswith(metric.unit)
    assert metric.value(EMPTY) is None
    assert metric.text(EMPTY) == "-"


def test_names_titles_and_places_are_unique() -> None:
    for field in ("name", "title", "path"):
        values = [getattr(metric, field) for metric in METRICS]
        assert len(set(values)) == len(values)


def test_a_few_values(full: Summary) -> None:
    values = {metric.name: metric.value(full) for metric in METRICS}
    assert values["goodput"] == 1000.0
    assert values["p99"] == 51.0
    assert values["service_p99"] == 49.5
    assert values["gc_pause_total"] == 7.5


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (1.0, "1"),
        (1.2345, "1.23"),
        (99.94, "99.9"),
        (99.96, "100"),
        (123.4, "123"),
        (999.6, "1,000"),
        (1234567.0, "1,234,567"),
        (0.0001234, "0.000123"),
        (0.00001234, "0.0000123"),
        (-12.345, "-12.3"),
        (-12345.0, "-12,345"),
    ],
)
def test_rounding(value: float, text: str) -> None:
    assert rounded(value) == text
