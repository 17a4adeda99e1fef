"""One written value of an option, checked: a duration, a rate, a whole number, one of several, a distribution."""

from __future__ import annotations

from agentdyno.contract.errors import UserError
from agentdyno.contract.quantities import parse_duration_s, parse_rate_rps
from agentdyno.contract.timing import parse as parse_distribution


class OptionError(UserError):
    """An option that cannot be meant; the text says which, what was given and what is accepted."""


def seconds(name: str, text: str, most: float, *, zero: bool = False) -> float:
    """An option that is a duration, in seconds. Raises OptionError when it is none, or more than `most`."""
    try:
        seconds = parse_duration_s(text, allow_zero=zero)
    except ValueError as error:
        raise OptionError(f"{name}: {error}") from error
    if seconds > most:
        raise OptionError(f"{name}={text!r} is longer than {most / 3600:g} hours, which is the most.")
    return seconds


def rate_rps(name: str, text: str) -> float:
    """An option that is a rate, requests a second. Raises OptionError when it is none."""
    try:
        return parse_rate_rps(text)
    except ValueError as error:
        raise OptionError(f"{name}: {error}") from error


def whole(name: str, text: str, least: int, most: int, also: str = "") -> int:
    """An option that is a whole number. also: what else would be accepted. Raises OptionError."""
    if not (text.isascii() and text.isdigit() and len(text) < 30 and least <= int(text) <= most):
        other = f", nor {also}" if also else ""
        raise OptionError(f"{name}={text[:40]!r} is not a whole number from {least} to {most}{other}.")
    return int(text)


def one_of(name: str, text: str, known: tuple[str, ...]) -> str:
    """An option that is one of these words. Raises OptionError."""
    if text not in known:
        raise OptionError(f"{name}={text!r} is not known; there are: {', '.join(known)}.")
    return text


def distribution(name: str, text: str | None) -> str | None:
    """An option that is a distribution, where it is given. Raises OptionError."""
    return None if text is None else distribution_words(name, text)


def distribution_words(name: str, text: str) -> str:
    """A distribution's words; a bare number is a constant. Raises OptionError."""
    words = f"const:{text}" if text.replace(".", "", 1).isdigit() else text
    try:
        parse_distribution(words)
    except ValueError as error:
        raise OptionError(f"{name}: {error}") from error
    return words
