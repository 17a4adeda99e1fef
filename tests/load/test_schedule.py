from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentdyno.contract.proof import Stage
from agentdyno.contract.run import LoadPlan
from agentdyno.load.schedule import BURST, NS_PER_S, Schedule, exact, follow

MS = 1_000_000


def plan(rate=200.0, warmup_s=10.0, duration_s=60.0, cooldown_s=1.0, workers=1) -> LoadPlan:
    return LoadPlan(
        rate=rate,
        warmup_s=warmup_s,
        duration_s=duration_s,
        cooldown_s=cooldown_s,
        timeout_s=10.0,
        max_in_flight=1000,
        seed=1,
        scenario="chain",
        workers=workers,
    )


def test_the_default_plan():
    schedule = Schedule(plan())
    assert [schedule.count(stage) for stage in Stage] == [2000, 12000, 200]
    assert schedule.arrivals == 14200
    assert schedule.measure_start_ns == 10 * NS_PER_S
    assert schedule.measure_end_ns == 70 * NS_PER_S
    first, last = schedule.arrival(2000), schedule.arrival(13999)
    assert (first.stage, first.stage_index, first.intended_ns) == (Stage.MEASURE, 0, 10 * NS_PER_S)
    assert (last.stage, last.stage_index, last.intended_ns) == (Stage.MEASURE, 11999, 69_995 * MS)
    assert schedule.arrival(14000).stage is Stage.COOLDOWN


@pytest.mark.parametrize(
    ("rate", "duration_s", "arrivals"), [(0.3, 10, 3), (1 / 3, 3, 1), (20 / 60, 60, 20), (0.1, 600, 60), (7, 0.7, 4)]
)
def test_stage_counts_are_exact_where_floats_are_not(rate, duration_s, arrivals):
    assert Schedule(plan(rate=rate, warmup_s=0.0, duration_s=float(duration_s))).count(Stage.MEASURE) == arrivals


def test_ten_minutes_at_an_awkward_rate_do_not_drift():
    schedule = Schedule(plan(rate=1000 / 3, duration_s=600.0))
    assert schedule.due_ns(1_000_000) == 3000 * NS_PER_S
    assert schedule.due_ns(1) == 3 * MS


@given(st.integers(1, 5000), st.integers(1, 60))
def test_a_float_stands_for_the_simple_fraction_that_was_meant(numerator, denominator):
    assert exact(numerator / denominator) == Fraction(numerator, denominator)


@given(
    rate=st.one_of(st.integers(1, 3000).map(float), st.floats(0.5, 3000)),
    workers=st.integers(1, 9),
    warmup_s=st.floats(0, 0.5),
)
def test_workers_share_without_overlap_or_gap(rate, workers, warmup_s):
    schedule = Schedule(plan(rate=rate, warmup_s=warmup_s, duration_s=2.0, cooldown_s=0.1, workers=workers))
    shares = [list(schedule.share(worker)) for worker in range(workers)]
    together = sorted((arrival for share in shares for arrival in share), key=lambda arrival: arrival.index)
    assert [arrival.index for arrival in together] == list(range(schedule.arrivals))
    assert together == [schedule.arrival(index) for index in range(schedule.arrivals)]
    assert len({(arrival.stage, arrival.stage_index) for arrival in together}) == schedule.arrivals
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    intervals = [b.intended_ns - a.intended_ns for a, b in pairwise(together)]
    assert all(abs(interval - NS_PER_S / rate) <= 1 for interval in intervals)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"rate": 0.0}, "rate must be"),
        ({"rate": float("nan")}, "rate must be"),
        ({"duration_s": -1.0}, "duration of measure"),
        ({"rate": 0.1, "duration_s": 1.0}, "too short for a single arrival"),
        ({"workers": 0}, "at least one worker"),
    ],
)
def test_plans_that_cannot_be_followed(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        Schedule(plan(**changes))


class VirtualTime:
    """A clock that moves only when someone waits, and as the test says: early, late, or stalled."""

    def __init__(self, now_ns=0, late_ns=(), early_ns=(), stalls=()):
        self.now_ns = now_ns
        self.late_ns, self.early_ns, self.stalls = list(late_ns), list(early_ns), dict(stalls)
        self.fired = []
        self.yields = 0

    def clock_ns(self) -> int:
        return self.now_ns

    def wait_until_ns(self, at_ns: int) -> None:
        if at_ns <= self.now_ns:
            self.yields += 1
        elif self.early_ns and self.early_ns[0] < at_ns - self.now_ns:
            self.now_ns = at_ns - self.early_ns.pop(0)
        else:
            self.now_ns = at_ns + (self.late_ns.pop(0) if self.late_ns else 0)

    def fire(self, arrival) -> None:
        self.fired.append((arrival.index, arrival.intended_ns, self.now_ns))
        self.now_ns += self.stalls.get(arrival.index, 0)

    def follow(self, schedule: Schedule, t0_ns: int) -> list[tuple[int, int, int]]:
        follow(schedule.share(0), t0_ns, self.clock_ns, self.wait_until_ns, self.fire)
        return self.fired


T0 = 5 * NS_PER_S
SHORT = Schedule(plan(warmup_s=0.0, duration_s=3.0, cooldown_s=0.0))


def test_on_time_every_arrival_fires_at_its_moment():
    fired = VirtualTime(now_ns=T0 - NS_PER_S).follow(SHORT, T0)
    assert fired == [(i, i * 5 * MS, T0 + i * 5 * MS) for i in range(600)]


def test_late_wake_ups_delay_only_what_was_due_meanwhile():
    fired = VirtualTime(now_ns=T0, late_ns=[0, 2 * MS, 7 * MS]).follow(SHORT, T0)
    moments = [(fired_ns - T0) // MS for _, _, fired_ns in fired[:7]]
    # The third wake-up is for arrival 3 (15 ms), comes at 22 ms, and finds arrival 4 (20 ms) due as well.
    assert moments == [0, 5, 12, 22, 22, 25, 30]
    assert [intended_ns for _, intended_ns, _ in fired] == [i * 5 * MS for i in range(600)]


def test_early_wake_ups_fire_nothing_early():
    fired = VirtualTime(now_ns=T0, early_ns=[1, 400, 3 * MS]).follow(SHORT, T0)
    assert fired == [(i, i * 5 * MS, T0 + i * 5 * MS) for i in range(600)]


def test_after_a_stall_all_missed_arrivals_fire_at_once_and_none_is_skipped():
    fired = VirtualTime(now_ns=T0, stalls={100: 1400 * MS}).follow(SHORT, T0)
    assert [index for index, _, _ in fired] == list(range(600))
    assert [intended_ns for _, intended_ns, _ in fired] == [i * 5 * MS for i in range(600)]
    stalled_until_ns = T0 + 500 * MS + 1400 * MS
    missed = range(101, 381)
    assert [fired[i][2] for i in missed] == [stalled_until_ns] * len(missed)
    assert all(fired[i][2] == T0 + i * 5 * MS for i in range(600) if i not in missed)


def test_a_start_that_comes_late_skips_nothing():
    fired = VirtualTime(now_ns=T0 + 52 * MS).follow(SHORT, T0)
    assert [fired_ns for _, _, fired_ns in fired[:12]] == [T0 + 52 * MS] * 11 + [T0 + 55 * MS]


def test_a_generator_that_cannot_keep_up_still_lets_others_run():
    time = VirtualTime(now_ns=T0, stalls=dict.fromkeys(range(14200), 6 * MS))
    fired = time.follow(Schedule(plan()), T0)
    assert len(fired) == 14200
    assert time.yields == (14200 - 1) // BURST
