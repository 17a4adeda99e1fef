"""Does a process's memory grow with the requests it serves? A regression over what it holds each time it is drained.

Two things look like a leak and are none: what the first requests fill (pools, caches, interned strings), and the
allocator's own steps. So the slope is that of the later half of the points, it must be more than the steps, and
a curve that is still bending down is not called a leak.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum

import msgspec
import numpy as np

RESULT_FILE = "soak.json"  # what a soak leaves, its growth among it
PER_REQUESTS = 10_000
POINTS_MIN = 10
# MB per 10,000 requests, 100 bytes a request: less is not what anybody means by a leak, and is not resolved either.
SLOPE_MIN_MB = 1.0
# MB. One arena of the allocator, or one thread's stack: growth below is a step, not a slope.
STEP_MB = 1.0
# The last third of a leak grows as the others do; of a cache that fills, less than half as much as the first, and still
# less than the middle one: what a host needs once, when more is in flight than before, stands in the first alone.
BEND = 0.5
STILL_BENDS = 0.75


class Verdict(StrEnum):
    """What the points say."""

    GROWS = "grows"
    DOES_NOT_GROW = "does not grow"
    NOT_LONG_ENOUGH = "not measured long enough"


class Drained(msgspec.Struct, frozen=True):
    """What the host held when nothing was in flight. requests: served until then."""

    requests: int
    memory_bytes: int


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """slope, low, high: MB (10^6 bytes) per 10,000 requests over the later half of the points, and its 95 % confidence
    interval; r2: of that fit, how much of the variance it explains. None with too few points, or too few requests
    between them. overall: over all points.
    """

    verdict: Verdict
    sentence: str
    points: int
    requests: int
    slope_mb: float | None = None
    low_mb: float | None = None
    high_mb: float | None = None
    r2: float | None = None
    overall_slope_mb: float | None = None


class _Fit(msgspec.Struct, frozen=True):
    slope: float
    low: float
    high: float
    r2: float


def growth(points: Sequence[Drained]) -> Growth:
    """Judge a series in the order of time."""
    count = len(points)
    requests = points[-1].requests - points[0].requests if points else 0
    missing = _missing(points)
    if missing is not None:
        return Growth(
            verdict=Verdict.NOT_LONG_ENOUGH,
            sentence=_sentence(Verdict.NOT_LONG_ENOUGH, missing),
            points=count,
            requests=requests,
        )
    later = _fit(points[count // 2 :])
    verdict, why = _judge(points, later)
    return Growth(
        verdict=verdict,
        sentence=_sentence(verdict, why),
        points=count,
        requests=requests,
        slope_mb=later.slope,
        low_mb=later.low,
        high_mb=later.high,
        r2=later.r2,
        overall_slope_mb=_fit(points).slope,
    )


def _missing(points: Sequence[Drained]) -> str | None:
    """What a fit would need and is not there, as a sentence."""
    count = len(points)
    if count < POINTS_MIN:
        return f"{count} points are too few to tell growth from chance; {POINTS_MIN} are needed."
    third = max(3, count // 3)
    for part, name in ((points[:third], "first third"), (points[-third:], "last third")):
        if part[0].requests == part[-1].requests:
            return f"no request was answered in the {name} of the points."
    return None


def _judge(points: Sequence[Drained], later: _Fit) -> tuple[Verdict, str]:
    half = points[len(points) // 2 :]
    gained_mb = later.slope * (half[-1].requests - half[0].requests) / PER_REQUESTS
    measured = f"{later.slope:+.2f} MB per {PER_REQUESTS:,} requests (95 %: {later.low:+.2f} to {later.high:+.2f})"
    if later.high < SLOPE_MIN_MB:
        return Verdict.DOES_NOT_GROW, f"{measured}, where {SLOPE_MIN_MB:g} MB would count."
    third = max(3, len(points) // 3)
    early, late = _fit(points[:third]).slope, _fit(points[-third:]).slope
    middle = _fit(points[third - 1 : 1 - third]).slope
    if early > SLOPE_MIN_MB and late < BEND * early and late < STILL_BENDS * middle:
        return (
            Verdict.NOT_LONG_ENOUGH,
            f"{measured}, and less and less of it ({early:+.2f} at first): it may be filling up.",
        )
    if later.low <= 0:
        return Verdict.NOT_LONG_ENOUGH, f"{measured} can be chance as well as a leak."
    if gained_mb < STEP_MB:
        return Verdict.NOT_LONG_ENOUGH, f"{measured}, but {gained_mb:.1f} MB in all can be one step of the allocator."
    return Verdict.GROWS, f"{measured}."


def _sentence(verdict: Verdict, why: str) -> str:
    words = {
        Verdict.GROWS: "Memory grows with the requests served",
        Verdict.DOES_NOT_GROW: "Memory does not grow with the requests served",
        Verdict.NOT_LONG_ENOUGH: "Not measured long enough to say whether memory grows",
    }
    return f"{words[verdict]}: {why}"


def _fit(points: Sequence[Drained]) -> _Fit:
    """Least squares. The interval counts for as many independent points as the residuals' autocorrelation leaves."""
    x = np.array([point.requests for point in points], float) / PER_REQUESTS
    y = np.array([point.memory_bytes for point in points], float) / 1e6
    spread = float(((x - x.mean()) ** 2).sum())
    slope = float(((x - x.mean()) * (y - y.mean())).sum() / spread)
    rest = y - y.mean() - slope * (x - x.mean())
    left, total = float((rest**2).sum()), float(((y - y.mean()) ** 2).sum())
    again = float((rest[1:] * rest[:-1]).sum() / left) if left > 0 else 0.0
    independent = len(points) * (1 - max(0.0, again)) / (1 + max(0.0, again))
    freedom = max(1.0, independent - 2)
    error = math.sqrt(left / freedom / spread)
    reach = _student_975(freedom) * error
    return _Fit(slope, slope - reach, slope + reach, 1 - left / total if total > 0 else 0.0)


def _student_975(freedom: float) -> float:
    """Student's t, 97.5 %, by the usual expansion around the normal; within 1 % from 3 degrees of freedom on."""
    if freedom < 3:
        return {1: 12.706, 2: 4.303}[int(freedom)]
    z = 1.959964
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / freedom ** (power + 1) for power, term in enumerate(terms))
