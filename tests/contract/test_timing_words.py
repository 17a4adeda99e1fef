"""Distributions in words: what they mean, that they repeat, and what is said about bad ones."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentdyno.contract.timing import parse

TEXTS = ["const:50", "uniform:10:50", "exp:50", "normal:50:10", "lognormal:50:0.4", "gamma:50:0.5", "gamma:50:2"]


def draws(text: str, count: int = 5000, seed: int = 1) -> list[float]:
    made = parse(text, seed=seed)
    return [made.draw(f"key {index}") for index in range(count)]


@given(st.sampled_from(TEXTS), st.integers(), st.lists(st.text(), min_size=1, unique=True))
def test_a_draw_depends_on_seed_and_key_only(text: str, seed: int, keys: Sequence[str]) -> None:
    first = parse(text, seed=seed, quantity="ttft_ms")
    drawn = {key: first.draw(key) for key in keys}
    shuffled = list(keys) * 2
    random.shuffle(shuffled)
    again = parse(text, seed=seed, quantity="ttft_ms")
    assert all(again.draw(key) == drawn[key] for key in shuffled)


@pytest.mark.parametrize("text", [text for text in TEXTS if not text.startswith("const")])
def test_seeds_quantities_and_keys_draw_differently(text: str) -> None:
    one = parse(text, seed=1, quantity="a").draw("k")
    others = [
        parse(text, seed=2, quantity="a").draw("k"),
        parse(text, seed=1, quantity="b").draw("k"),
        parse(text, seed=1, quantity="a").draw("l"),
    ]
    assert len({one, *others}) == 4


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("uniform:10:50", 43.26358417999001),
        ("exp:50", 9.220811183898164),
        ("normal:50:10", 59.6046608034449),
        ("lognormal:50:0.4", 73.42095319803768),
        ("gamma:50:0.5", 72.88068148802405),
    ],
)
def test_draws_stay_the_same_from_release_to_release(text: str, value: float) -> None:
    assert parse(text, seed=7, quantity="ttft_ms").draw("ORD-m1f4-5d0c2a9b:2") == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "mean", "deviation"),
    [
        ("const:50", 50, 0),
        ("uniform:10:50", 30, 40 / math.sqrt(12)),
        ("exp:50", 50, 50),
        ("normal:50:10", 50, 10),
        ("lognormal:50:0.4", 50 * math.exp(0.08), 50 * math.exp(0.08) * math.sqrt(math.exp(0.16) - 1)),
        ("gamma:50:0.5", 50, 25),
        ("gamma:50:2", 50, 100),
        ("normal:0:10", 10 * math.sqrt(2 / math.pi), 10 * math.sqrt(1 - 2 / math.pi)),
    ],
)
def test_moments_are_those_of_the_distribution(text: str, mean: float, deviation: float) -> None:
    # The draws are fixed by the seed, so this cannot fail by chance.
    made = draws(text, 20_000)
    assert statistics.fmean(made) == pytest.approx(mean, rel=0.03)
    assert statistics.pstdev(made) == pytest.approx(deviation, rel=0.06)
    assert min(made) >= 0


def test_the_log_normal_is_given_by_its_median() -> None:
    assert statistics.median(draws("lognormal:120:0.8", 20_000)) == pytest.approx(120, rel=0.03)


def test_the_truncated_normal_has_no_heap_at_zero() -> None:
    made = draws("normal:5:10", 5000)
    assert min(made) >= 0
    assert sum(value == 0 for value in made) <= 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("const:0", 0), ("uniform:7:7", 7), ("exp:0", 0), ("normal:5:0", 5), ("lognormal:5:0", 5), ("gamma:0:1", 0),
        ("lognormal:0:1", 0), (" const:1e3 ", 1000),
    ],
)  # fmt: skip
def test_what_never_varies_is_known_as_constant(text: str, value: float) -> None:
    assert parse(text).constant == value
    assert parse(text).draw("x") == value
    assert parse("exp:50").constant is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "names no distribution. Write one of: const:VALUE, uniform:LOW:HIGH"),
        ("50", "'50' names no distribution"),
        ("poisson:3", "'poisson:3' names no distribution"),
        ("const", "has 0 parameters, but const takes 1: write const:VALUE"),
        ("const:1:2", "has 2 parameters, but const takes 1"),
        ("normal:50", "has 1 parameters, but normal takes 2: write normal:MEAN:DEVIATION"),
        ("const:fast", "VALUE is 'fast', which is not a number"),
        ("const:-1", "VALUE is -1, but it must be finite and not negative"),
        ("exp:nan", "MEAN is nan, but it must be finite"),
        ("exp:inf", "MEAN is inf, but it must be finite"),
        ("uniform:5:1", "LOW must not exceed HIGH"),
        ("gamma:5:0", "CV must lie between 0.01 and 10"),
        ("lognormal:5:50", "SIGMA must be at most 10"),
    ],
)
def test_bad_words_get_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=r"^.+$") as raised:
        parse(text)
    assert sentence in str(raised.value)
    assert str(raised.value).endswith(".")
