"""Distributions in words: how long the mock LLM and the mock tools take, how long an answer is.

=====================  ==============================================================================
words                  meaning (all values are finite and not negative)
=====================  ==============================================================================
const:50               always 50
uniform:10:50          between 10 and 50, all equally likely
exp:50                 exponential with mean 50
normal:50:10           normal with mean 50 and standard deviation 10, truncated at 0 (conditional on
                       being positive, so no mass piles up at 0)
lognormal:50:0.4       log-normal with median 50; 0.4 is the standard deviation of its logarithm
gamma:50:0.5           gamma with mean 50 and coefficient of variation 0.5
=====================  ==============================================================================

A draw depends on nothing but the seed, the quantity's name and a key (an order id and a turn, say): the same
request gets the same delay under every framework, in any order of arrival, in any process and Python version.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from random import Random
from statistics import NormalDist

_STANDARD_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class _Kind:
    """A named form: its parameters' names, a rule on them, and the draw from a seeded source of uniforms."""

    parameters: tuple[str, ...]
    rule: str
    holds: Callable[[tuple[float, ...]], bool]
    sample: Callable[[tuple[float, ...], Random], float]


def _open_uniform(source: Random) -> float:
    """Uniform on (0, 1), both ends excluded: the 52-bit cells' midpoints."""
    return (source.getrandbits(52) + 0.5) / 2**52


def _uniform(p: tuple[float, ...], source: Random) -> float:
    low, high = p
    return low + (high - low) * _open_uniform(source)


def _exponential(p: tuple[float, ...], source: Random) -> float:
    return -p[0] * math.log(_open_uniform(source))


def _normal(p: tuple[float, ...], source: Random) -> float:
    mean, deviation = p
    if deviation == 0:
        return mean
    # Inversion on the part of the distribution above 0; the mean is not negative, so that part is at least half.
    below = _STANDARD_NORMAL.cdf(-mean / deviation)
    quantile = below + (1 - below) * _open_uniform(source)
    # Rounding may bring the quantile of the far tail up to 1, where the inverse is not defined.
    return max(0.0, mean + deviation * _STANDARD_NORMAL.inv_cdf(min(quantile, 1 - 2**-53)))


def _lognormal(p: tuple[float, ...], source: Random) -> float:
    median, sigma = p
    return median * math.exp(sigma * _STANDARD_NORMAL.inv_cdf(_open_uniform(source)))


def _gamma(p: tuple[float, ...], source: Random) -> float:
    """Marsaglia and Tsang's method; written out because Random's own variates may change with Python."""
    mean, variation = p
    shape = 1 / variation**2
    boost = 1.0
    if shape < 1:
        boost = _open_uniform(source) ** (1 / shape)
        shape += 1
    d = shape - 1 / 3
    c = 1 / math.sqrt(9 * d)
    while True:
        x = _STANDARD_NORMAL.inv_cdf(_open_uniform(source))
        v = (1 + c * x) ** 3
        if v > 0 and math.log(_open_uniform(source)) < x * x / 2 + d * (1 - v + math.log(v)):
            return d * v * boost * mean * variation**2


_KINDS: dict[str, _Kind] = {
    "const": _Kind(("VALUE",), "", lambda p: True, lambda p, _: p[0]),
    "uniform": _Kind(("LOW", "HIGH"), "LOW must not exceed HIGH", lambda p: p[0] <= p[1], _uniform),
    "exp": _Kind(("MEAN",), "", lambda p: True, _exponential),
    "normal": _Kind(("MEAN", "DEVIATION"), "", lambda p: True, _normal),
    "lognormal": _Kind(("MEDIAN", "SIGMA"), "SIGMA must be at most 10", lambda p: p[1] <= 10, _lognormal),
    "gamma": _Kind(("MEAN", "CV"), "CV must lie between 0.01 and 10", lambda p: 0.01 <= p[1] <= 10, _gamma),
}
FORMS = ", ".join(":".join((name, *kind.parameters)) for name, kind in _KINDS.items())


@dataclass(frozen=True, slots=True)
class Distribution:
    """A distribution with its seed and the name of the quantity it is for; make it with `parse`.

    text: the words it was made from. constant: its value when it never varies, else None (so that a caller
    may skip the draw).
    """

    text: str
    seed: int
    quantity: str
    constant: float | None
    _kind: _Kind
    _parameters: tuple[float, ...]

    def draw(self, key: str) -> float:
        """The value for `key`, never negative; the same for the same seed, quantity and key."""
        if self.constant is not None:
            return self.constant
        digest = blake2b(f"{self.seed}|{self.quantity}|{key}".encode(errors="surrogatepass"), digest_size=16).digest()
        return self._kind.sample(self._parameters, Random(int.from_bytes(digest, "big")))


def parse(text: str, *, seed: int = 1, quantity: str = "") -> Distribution:
    """The distribution that `text` names.

    quantity: what is drawn ("ttft_ms", say); two quantities with one seed and key draw independently.
    Raises ValueError with a sentence when the text is not one of the forms.
    """
    name, *words = text.strip().split(":")
    kind = _KINDS.get(name)
    if kind is None:
        raise ValueError(f"{text!r} names no distribution. Write one of: {FORMS}.")
    form = ":".join((name, *kind.parameters))
    if len(words) != len(kind.parameters):
        raise ValueError(
            f"{text!r} has {len(words)} parameters, but {name} takes {len(kind.parameters)}: write {form}."
        )
    parameters = tuple(_number(word, label, text, form) for word, label in zip(words, kind.parameters, strict=True))
    if not kind.holds(parameters):
        raise ValueError(f"In {text!r} the values do not fit {form}: {kind.rule}.")
    constant = kind.sample(parameters, Random(0)) if _never_varies(name, parameters) else None
    return Distribution(text, seed, quantity, constant, kind, parameters)


def _never_varies(name: str, p: tuple[float, ...]) -> bool:
    if name == "uniform":
        return p[0] == p[1]
    if name == "normal":
        return p[1] == 0
    return name == "const" or p[0] == 0 or (name == "lognormal" and p[1] == 0)


def _number(word: str, label: str, text: str, form: str) -> float:
    try:
        value = float(word)
    except ValueError:
        raise ValueError(f"In {text!r} {label} is {word!r}, which is not a number: write {form}.") from None
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"In {text!r} {label} is {word}, but it must be finite and not negative.")
    return value
