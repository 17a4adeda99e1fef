"""What a campaign measures and in which order: contestants, loads, rounds, and what a budget of time allows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log10

from agentdyno.contract.campaign import CONTROL, NULL_MARK, LoadName, PlannedRun, Probe
from agentdyno.rig.option_values import OptionError

DEFAULT_ROUNDS = 5
MIN_ROUNDS = 3  # with fewer no interval can be given
MAX_ROUNDS = 100
DEFAULT_DURATION_S = 30.0
DEFAULT_WARMUP_S = 5.0
PROBE_S = 8.0
PROBE_WARMUP_S = 2.0
# Few at once, so that what is answered is answered long before it is given up, and goodput is capacity.
PROBE_ADMISSION = 4
STEADY_SHARE = 0.5
_OVERHEAD_S = 9.0  # start, first answer, drain, end: measured 6 s where the framework keeps up, more where it does not
HEAP_OVERHEAD_S = 16.0  # of a run with the profiler, whose snapshots are read and drawn after it
SEARCH_S = 240.0  # of a capacity search's 20 steps; with 9 to 12 of them it was 110 to 155
_MIN_DURATION_S = 8.0
_MAX_DURATION_S = 600.0


@dataclass(frozen=True, slots=True)
class Times:
    """What each run of the campaign is given."""

    rounds: int
    duration_s: float
    warmup_s: float

    def campaign_s(self, entries: int) -> float:
        """About how long the rounds of so many entries take."""
        return self.rounds * entries * len(LoadName) * (self.duration_s + self.warmup_s + _OVERHEAD_S)


def labels_of(names: Sequence[str], *, null_test: bool) -> tuple[list[str], tuple[str, str] | None]:
    """The contestants, the control first, and the pair that is one adapter twice.

    The control is added where it is missing, and, for the null test, once more as `bare#2`.
    Raises OptionError for a name that stands there twice: the same adapter again is `name#2`.
    """
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        text = f"FRAMEWORKS names {twice} twice. The same adapter a second time is {twice}{NULL_MARK}2."
        raise OptionError(text)
    labels = [CONTROL, *(name for name in names if name != CONTROL)]
    marked = [label for label in labels if NULL_MARK in label]
    lonely = next((label for label in marked if variant_of(label) not in labels), None)
    if lonely is not None:
        raise OptionError(f"FRAMEWORKS names {lonely} without {variant_of(lonely)}, which it is compared with.")
    if null_test and not marked:
        marked = [f"{CONTROL}{NULL_MARK}2"]
        labels += marked
    return labels, (variant_of(marked[0]), marked[0]) if marked else None


def variant_of(label: str) -> str:
    """The variant that a label stands for: `bare` for `bare#2`."""
    return label.partition(NULL_MARK)[0]


def draw(labels: Sequence[str], rounds: int, seed: int) -> list[PlannedRun]:
    """The plan: in each round every entry once under each load, all of them in random order.

    Random and not rotated, so that no entry always follows the same one; drawn from the seed, so that it can be told.
    """
    source = random.Random(seed)
    runs: list[PlannedRun] = []
    for number in range(1, rounds + 1):
        places = [(load, label) for load in LoadName for label in labels]
        source.shuffle(places)
        runs += [
            PlannedRun(number=len(runs) + at, round=number, load=load, label=label)
            for at, (load, label) in enumerate(places, 1)
        ]
    return runs


def steady_rate(probes: Sequence[Probe], standard_rate: float) -> float:
    """Half of what the slowest entry holds, rounded down to two digits; never above the standard rate.

    What an entry holds is the most that it answered in a probe.

    Raises OptionError when no entry answered anything: then there is no rate that all of them hold.
    """
    held: dict[str, float] = {}
    for probe in probes:
        if probe.capacity_rps is not None:
            held[probe.label] = max(probe.capacity_rps, held.get(probe.label, 0.0))
    if not held:
        raise OptionError("No framework answered anything in its probe, so there is no rate to compare them at.")
    wanted = min(STEADY_SHARE * min(held.values()), standard_rate)
    unit = 10.0 ** (floor(log10(wanted)) - 1)
    # The division first: 0.3 / 0.1 is a little less than 3.
    return round(floor(round(wanted / unit, 6)) * unit, 6)


def within_budget(
    budget_s: float, entries: int, rounds: int | None, warmup_s: float, *, heaps: int = 0, searches: int = 0
) -> Times:
    """Rounds and durations that fit: five rounds where they do, else three; the rest of the time goes into longer runs.

    heaps: so many more runs, each with the profiler. searches: so many searches for a capacity.
    Raises OptionError when not even three short rounds fit, with the least that would do.
    """
    other_s = entries * (PROBE_S + PROBE_WARMUP_S + _OVERHEAD_S)
    other_s += heaps * (HEAP_OVERHEAD_S - _OVERHEAD_S) + searches * SEARCH_S
    for count in (rounds,) if rounds is not None else (DEFAULT_ROUNDS, MIN_ROUNDS):
        runs = count * entries * len(LoadName) + heaps
        duration_s = (budget_s - other_s) / runs - warmup_s - _OVERHEAD_S
        if duration_s >= _MIN_DURATION_S:
            return Times(count, min(float(floor(duration_s)), _MAX_DURATION_S), warmup_s)
    count = MIN_ROUNDS if rounds is None else rounds
    least_s = other_s + Times(count, _MIN_DURATION_S, warmup_s).campaign_s(entries)
    least_s += heaps * (_MIN_DURATION_S + warmup_s + _OVERHEAD_S)
    more = [f"{heaps} heap profiles"] * bool(heaps) + [f"{searches} capacity searches"] * bool(searches)
    raise OptionError(
        f"TIME={budget_s / 60:g}m is too short: {count} rounds of {entries} entries under two loads, each for "
        f"{_MIN_DURATION_S:g} s after {warmup_s:g} s of warm-up{''.join(f', and {one}' for one in more)}, take about "
        f"{least_s / 60:.0f}m. Name fewer FRAMEWORKS, or give it more time."
    )
