"""A gate's limits in words: `p99=+20%` after --max, `goodput=-10%` after --min."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from agentdyno.analysis.metrics import METRICS, Better, Metric
from agentdyno.contract.errors import UserError

# Where none is given: a fifth more is where the alarm goes off.
DEFAULT_MAX = ("p95=+20%", "rss_peak=+20%")
_LIMIT = re.compile(r"(?P<metric>[A-Za-z0-9_]+)=(?P<percent>[+-]?\d+(\.\d+)?)\s*%")


class LimitError(UserError):
    """A limit that says nothing; the text says how to write it."""


@dataclass(frozen=True, slots=True)
class Limit:
    """By how much a figure may change. upper: the change is at most `percent`, otherwise at least that."""

    metric: Metric
    percent: float
    upper: bool

    @property
    def ratio(self) -> float:
        """Candidate over baseline at the limit."""
        return 1 + self.percent / 100

    def __str__(self) -> str:
        return f"{'at most' if self.upper else 'at least'} {self.percent:+g} %"


def read_limits(at_most: Iterable[str], at_least: Iterable[str]) -> tuple[Limit, ...]:
    """The limits that the words stand for, those of DEFAULT_MAX where there are none. Raises LimitError."""
    words = [(text, True) for text in at_most] + [(text, False) for text in at_least]
    return tuple(_limit(text, upper) for text, upper in words or [(text, True) for text in DEFAULT_MAX])


def _limit(text: str, upper: bool) -> Limit:
    option, other = ("--max", "--min") if upper else ("--min", "--max")
    found = _LIMIT.fullmatch(text.strip())
    if found is None:
        raise LimitError(f"{option} {text!r} is no limit. Write a metric and a change in percent: --max p99=+20%.")
    known = {metric.name: metric for metric in METRICS}
    metric = known.get(found["metric"])
    if metric is None:
        raise LimitError(f"{option}: there is no metric {found['metric']!r}. There are: {', '.join(known)}.")
    percent = float(found["percent"])
    if percent <= -100:
        raise LimitError(f"{option} {text}: no figure can fall by 100 % or more; give a smaller change.")
    if metric.better is (Better.HIGHER if upper else Better.LOWER):
        direction = "higher" if upper else "lower"
        what = f"{option} {text} would forbid {metric.name} to become better: it is better when it is {direction}."
        raise LimitError(f"{what} Write {other} {metric.name}={-percent:+g}%.")
    return Limit(metric, percent, upper)
