"""Quantities as people write them on a command line: durations, rates and percentages.

Only plain ASCII decimal numbers are read: no sign, no exponent, no blank, no nan, no inf. Sums and quotients
are exact fractions until the last step, so that "500ms" is 0.5 and "12000/min" is 200.0, not nearly so.
"""

from __future__ import annotations

import re
from fractions import Fraction

_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_PLAIN = re.compile(_NUMBER)
_DURATION = re.compile("".join(f"(?:({_NUMBER}){unit})?" for unit in ("h", "m(?!s)", "s", "ms")))
_SECONDS_PER_UNIT = (Fraction(3600), Fraction(60), Fraction(1), Fraction(1, 1000))
_RATE = re.compile(f"({_NUMBER})(/s|/min)?")
_PERCENT = re.compile(rf"\+?({_NUMBER})%")

DURATION_FORMS = "60s, 10m, 500ms, 1h, 1m30s, or plain seconds such as 45"
RATE_FORMS = "200, 0.5, 200/s (per second), or 12000/min"
PERCENT_FORMS = "20% or +20%"


def parse_duration_s(text: str, *, allow_zero: bool = False) -> float:
    """A duration in seconds. Units go from large to small, each at most once.

    Raises ValueError with a sentence when `text` has another form, is too large for a number, or is zero
    where `allow_zero` is not set.
    """
    if _PLAIN.fullmatch(text):
        return _checked("duration", text, DURATION_FORMS, Fraction(text), allow_zero)
    match = _DURATION.fullmatch(text)
    if match is None or not text:
        raise _refused("duration", text, DURATION_FORMS)
    parts = zip(match.groups(), _SECONDS_PER_UNIT, strict=True)
    total = sum((Fraction(number) * unit for number, unit in parts if number is not None), Fraction(0))
    return _checked("duration", text, DURATION_FORMS, total, allow_zero)


def parse_rate_rps(text: str) -> float:
    """A rate in requests per second. Raises ValueError with a sentence for another form or for zero."""
    match = _RATE.fullmatch(text)
    if match is None:
        raise _refused("rate", text, RATE_FORMS)
    per_s = Fraction(match[1]) / (60 if match[2] == "/min" else 1)
    return _checked("rate", text, RATE_FORMS, per_s, allow_zero=False)


def parse_percent(text: str) -> float:
    """A percentage, as percent: "20%" is 20.0. Zero is allowed. Raises ValueError with a sentence otherwise."""
    match = _PERCENT.fullmatch(text)
    if match is None:
        raise _refused("percentage", text, PERCENT_FORMS)
    return _checked("percentage", text, PERCENT_FORMS, Fraction(match[1]), allow_zero=True)


def _refused(what: str, text: str, forms: str) -> ValueError:
    given = repr(text) if len(text) <= 40 else f"{text[:40]!r}..."
    return ValueError(f"{given} is not a {what}; accepted forms are {forms}.")


def _checked(what: str, text: str, forms: str, value: Fraction, allow_zero: bool) -> float:
    """`value` as a float, unless it is zero where that makes no sense, or beyond what a float can hold."""
    if value == 0 and not allow_zero:
        raise ValueError(f"The {what} {text!r} is zero; it must be greater. Accepted forms are {forms}.")
    try:
        number = float(value)
    except OverflowError:
        number = 0.0
    if number == 0 and value != 0:
        raise ValueError(f"The {what} {text[:40]!r}... is too large or too small. Accepted forms are {forms}.")
    return number
