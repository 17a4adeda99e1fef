"""A service-level objective in words, `p99<2s,errors<0.1%`, and the clauses that it is made of."""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec

from agentdyno.contract.errors import UserError
from agentdyno.contract.quantities import parse_percent

# A host that rejects nearly everything answers the rest fast: without a word on errors latency alone proves nothing.
IMPLIED_ERRORS_PERCENT = 1.0

_CLAUSE = re.compile(r"([a-z0-9.]+)\s*<\s*(\S+)")
_TIME = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s)")
_MAX_MS = 3_600_000.0
FORMS = "p99<2s,errors<0.1% (of p50, p90, p95, p99, p999, in ms or s; errors and rejected, in %)"


class ObjectiveError(UserError):
    """Words that make no objective; the text says which and what is accepted."""


class Measure(StrEnum):
    """What a clause limits.

    p50 to p999: of the verified answers' latency from the intended start. errors: the share of arrivals without a right
    answer, be they failed, timed out, rejected or dropped. rejected: the share of those that got a 429.
    """

    P50 = "p50"
    P90 = "p90"
    P95 = "p95"
    P99 = "p99"
    P999 = "p999"
    ERRORS = "errors"
    REJECTED = "rejected"

    @property
    def quantile(self) -> float | None:
        """The quantile of a percentile: 0.999 of p999; None for a share."""
        return None if self in (Measure.ERRORS, Measure.REJECTED) else float(f"0.{self.value[1:]}")

    @property
    def unit(self) -> str:
        """Of its limit."""
        return "%" if self.quantile is None else "ms"


class Clause(msgspec.Struct, frozen=True):
    """`measure` must be below `limit`, in ms or percent. implied: not asked for, see IMPLIED_ERRORS_PERCENT."""

    measure: Measure
    limit: float
    implied: bool = False

    def __str__(self) -> str:
        """As one writes it, with the unit."""
        seconds = self.measure.quantile is not None and self.limit >= 1000
        number, unit = (self.limit / 1000, "s") if seconds else (self.limit, self.measure.unit)
        return f"{self.measure.value}<{number:.15g}{unit}"


def parse_objective(words: str) -> tuple[Clause, ...]:
    """The clauses of an objective, an implied one on errors behind them. Raises ObjectiveError with a sentence."""
    clauses = [_clause(part.strip(), words) for part in words.split(",")]
    measures = [clause.measure for clause in clauses]
    twice = next((measure for measure in measures if measures.count(measure) > 1), None)
    if twice is not None:
        raise ObjectiveError(f"SLO={words[:80]!r} names {twice.value} twice.")
    if Measure.ERRORS not in measures:
        allowed = sum(clause.limit for clause in clauses if clause.measure is Measure.REJECTED)
        clauses.append(Clause(Measure.ERRORS, min(100.0, IMPLIED_ERRORS_PERCENT + allowed), implied=True))
    return tuple(clauses)


def _clause(part: str, words: str) -> Clause:
    match = _CLAUSE.fullmatch(part)
    if match is None:
        raise ObjectiveError(f"SLO={words[:80]!r}: {part[:40]!r} is no clause; accepted are such as {FORMS}.")
    name = "p999" if match[1] == "p99.9" else match[1]
    if name not in {measure.value for measure in Measure}:
        known = ", ".join(measure.value for measure in Measure)
        raise ObjectiveError(f"SLO={words[:80]!r}: {name!r} is not known; there are: {known}.")
    measure = Measure(name)
    return Clause(measure, _percent(part, match[2]) if measure.quantile is None else _ms(part, match[2]))


def _ms(part: str, text: str) -> float:
    match = _TIME.fullmatch(text)
    if match is None:
        raise ObjectiveError(f"SLO: {part!r} needs a time in ms or s, such as 250ms or 2s.")
    limit_ms = float(match[1]) * (1000 if match[2] == "s" else 1)
    if not 0 < limit_ms <= _MAX_MS:
        raise ObjectiveError(f"SLO: {part!r} can never tell anything; a time is above zero and an hour at most.")
    return limit_ms


def _percent(part: str, text: str) -> float:
    try:
        percent = parse_percent(text)
    except ValueError as error:
        raise ObjectiveError(f"SLO: {part!r} needs a share in %, such as 0.1%.") from error
    if not 0 < percent <= 100:
        raise ObjectiveError(f"SLO: {part!r} can never tell anything; a share is above 0% and 100% at most.")
    return percent
