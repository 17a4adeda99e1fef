"""Looks at the metrics of a run's processes, and how their counters have grown from one to another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

Labels = frozenset[tuple[str, str]]
Series = Mapping[str, Mapping[Labels, float]]
_WORKER_ELAPSED = "agentdyno_load_worker_elapsed_seconds"
_LOAD_START = "agentdyno_load_start_time_seconds"
_LOAD = "load"


def series(text: str) -> Series:
    """All series of an exposition, by their names. Raises ValueError for a text that is none."""
    found: dict[str, dict[Labels, float]] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    except IndexError as error:  # how the parser takes some of what is no exposition
        raise ValueError("It ends in the middle of a label.") from error
    return found


@dataclass(frozen=True, slots=True)
class Look:
    """All series of a run's processes at one moment. at_s: on the monotonic clock. silent: roles without an answer."""

    at_s: float
    parts: tuple[Series, ...]
    silent: tuple[str, ...] = ()

    def of(self, name: str, **labels: str) -> float | None:
        """The sum over the series with these labels; None when there is none."""
        wanted = frozenset(labels.items())
        found = [value for has, value in self._all(name) if wanted <= has]
        return sum(found) if found else None

    def by(self, name: str, label: str) -> dict[str, float]:
        """The sums by one label."""
        sums: dict[str, float] = {}
        for labels, value in self._all(name):
            key = dict(labels).get(label, "")
            sums[key] = sums.get(key, 0.0) + value
        return sums

    def _all(self, name: str) -> Iterable[tuple[Labels, float]]:
        return (item for part in self.parts for item in part.get(name, {}).items())


class Grown:
    """How counters have grown up to a look, and within how many seconds.

    before: the look that they have grown since. whole: whether a counter that was not there then began within these
    seconds, so that all that it counts is growth; else its growth is not known.
    """

    def __init__(self, before: Look | None, now: Look, seconds: float | None, *, whole: bool) -> None:
        self.now = now
        self._before = before
        self._seconds = seconds
        self._whole = whole

    def count(self, name: str, **labels: str) -> float | None:
        """How much a counter has grown; None where it is not known."""
        value = self.now.of(name, **labels)
        had = None if self._before is None else self._before.of(name, **labels)
        if value is None or had is None:
            return value if self._whole else None
        return value - had if value >= had else value  # another process counts now, from 0

    def rate(self, name: str, **labels: str) -> float | None:
        """The same a second."""
        count = self.count(name, **labels)
        return None if count is None or not self._seconds or self._seconds < 0 else count / self._seconds

    def quantile_ms(self, q: float, name: str) -> float | None:
        """A quantile from buckets, linear within the bucket as in Prometheus; None without samples."""
        bounds = sorted(self.now.by(f"{name}_bucket", "le"), key=float)
        counts = [self.count(f"{name}_bucket", le=bound) or 0.0 for bound in bounds]
        if not counts or counts[-1] <= 0:
            return None
        rank = q * counts[-1]
        at = next(n for n, count in enumerate(counts) if count >= rank)
        low, below = (float(bounds[at - 1]), counts[at - 1]) if at else (0.0, 0.0)
        high = float(bounds[at])
        if high == float("inf"):
            return low * 1000
        return (low + (high - low) * (rank - below) / (counts[at] - below)) * 1000


class Between:
    """What has happened between two looks, or, of the load alone, since its start where there is no first one.

    load: the load's counters, over the time that its own reports are apart. Several workers report every three seconds,
    each at its own moments, so that the looks' time says nothing of what these counters have had time for. Workers have
    equal shares of the schedule: the mean of what their clocks have moved is the time that the sums have grown in, also
    where only some have reported.
    rest: all other counters, over the time between the looks.
    """

    def __init__(self, before: Look | None, now: Look) -> None:
        self.complete = before is not None
        own_s = None if before is None else now.at_s - before.at_s
        self.rest = Grown(before, now, own_s, whole=False)
        if before is not None and before.of(_LOAD_START) != now.of(_LOAD_START):
            before = None  # another load: a search has one at each step
        moved_s = now.of(_WORKER_ELAPSED)
        if moved_s is not None:
            earlier_s = None if before is None else before.of(_WORKER_ELAPSED)
            moved_s = (moved_s - (earlier_s or 0.0)) / len(now.by(_WORKER_ELAPSED, "worker"))
        self.load = Grown(before, now, moved_s, whole=True)


class Looks:
    """The looks at one run. now: the last one. between: what to show of its counters; it begins where the one before
    ended, and stays as it is until the load has reported anew.
    """

    def __init__(self, first: Look) -> None:
        self.now = first
        self.between = Between(None, first)
        self._last = None if _LOAD in first.silent else first

    def see(self, now: Look) -> None:
        """One more has been taken."""
        self.now = now
        if _LOAD in now.silent:
            self.between = Between(self._last, now)
        elif self._last is None or _has_news(self._last, now):
            self.between, self._last = Between(self._last, now), now


def _has_news(before: Look, now: Look) -> bool:
    """Whether the load's workers have reported in between; also where there is no load that could."""
    clock = now.of(_WORKER_ELAPSED)
    return clock is None or clock != before.of(_WORKER_ELAPSED) or before.of(_LOAD_START) != now.of(_LOAD_START)
