"""Workers' histograms merge into the very one of all their samples, for every split of a schedule."""

from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentdyno.load.schedule import Schedule
from agentdyno.load.service_histogram import DIGITS, ServiceHistogram, pooled
from tests.load.test_schedule import plan

PERCENTS = (1.0, 50.0, 90.0, 99.0, 99.9, 100.0)


def of(samples_ns: list[int]) -> ServiceHistogram:
    made = ServiceHistogram()
    for sample_ns in samples_ns:
        made.add(sample_ns)
    return made


@settings(max_examples=40, deadline=None)
@given(
    rate=st.floats(1, 200),
    workers=st.integers(1, 9),
    spread=st.integers(1, 10**10),
)
def test_they_merge_to_the_pooled_percentiles_exactly(rate: float, workers: int, spread: int) -> None:
    schedule = Schedule(plan(rate=rate, warmup_s=0.0, duration_s=2.0, cooldown_s=0.0, workers=workers))
    shares = [
        [1000 + arrival.index * 2_654_435_761 % spread for arrival in schedule.share(worker)]
        for worker in range(workers)
    ]
    everything = sorted(sample for share in shares for sample in share)
    merged, together = pooled(of(share).encoded() for share in shares), of(everything)
    assert merged.n == together.n == len(everything)
    for percent in PERCENTS:
        found = merged.percentile_ms(percent)
        assert found == together.percentile_ms(percent)
        exact_ms = everything[ceil(len(everything) * percent / 100) - 1] / 1e6
        assert found == pytest.approx(exact_ms, rel=10**-DIGITS, abs=1e-3)


def test_what_cannot_be_is_kept_at_the_edge() -> None:
    found = of([0, 10**18])
    assert (found.n, found.percentile_ms(50.0)) == (2, 0.001)
    assert found.percentile_ms(100.0) == pytest.approx(3_600_000, rel=10**-DIGITS)


def test_a_text_that_is_none_is_said() -> None:
    with pytest.raises(ValueError, match=r"'not one'\.\.\. is no HDR histogram"):
        pooled(["not one"])
