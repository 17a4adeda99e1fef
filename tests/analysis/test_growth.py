"""Synthetic series whose truth is known: leaks, caches that fill, steps, noise, and too little of anything."""

import numpy as np
import pytest

from agentdyno.analysis.growth import Drained, Verdict, growth

BASE = 60_000_000


def series(held, points: int = 31, each: int = 2_000, noise: float = 0.0, seed: int = 1) -> list[Drained]:
    """held: bytes above the base after so many requests. noise: the standard deviation, bytes."""
    random = np.random.default_rng(seed)
    return [
        Drained(number * each, int(BASE + held(number * each) + random.normal(0, noise))) for number in range(points)
    ]


def steps(held, arena: int = 262_144):
    """As an allocator asks the kernel for it: in whole arenas."""
    return lambda requests: -(-held(requests) // arena) * arena


@pytest.mark.parametrize("seed", range(5))
def test_a_leak_of_a_kibibyte_a_request_is_caught(seed: int) -> None:
    found = growth(series(steps(lambda requests: 1024 * requests), noise=100_000, seed=seed))
    assert found.verdict is Verdict.GROWS
    assert found.low_mb < 10.24 < found.high_mb
    assert found.slope_mb == pytest.approx(10.24, rel=0.05)
    assert found.r2 > 0.95
    assert found.sentence.startswith("Memory grows with the requests served: +10.")


def test_a_leak_beneath_a_cache_that_fills_is_caught_all_the_same() -> None:
    found = growth(series(lambda n: 1024 * n + 4_000_000 * (1 - np.exp(-n / 4_000)), noise=50_000))
    assert found.verdict is Verdict.GROWS


def test_a_leak_is_one_whatever_the_host_needed_once_at_first() -> None:
    """In its first third it got room for more in flight than before, and grew so three times as fast."""
    found = growth(series(lambda n: 1024 * n + (30_000_000 if n > 8_000 else 0), noise=50_000))
    assert found.verdict is Verdict.GROWS
    assert found.slope_mb == pytest.approx(10.24, rel=0.05)


@pytest.mark.parametrize(
    "cache",
    [
        lambda requests: 4096 * min(requests, 5_000),
        lambda requests: 20_000_000 * (1 - np.exp(-requests / 5_000)),
        lambda requests: 8_000_000 if requests else 0,
    ],
    ids=["stops at its limit", "saturates", "fills at once"],
)
@pytest.mark.parametrize("seed", range(5))
def test_a_cache_that_fills_is_no_leak(cache, seed: int) -> None:
    found = growth(series(cache, noise=100_000, seed=seed))
    assert found.verdict is Verdict.DOES_NOT_GROW
    assert found.overall_slope_mb > found.slope_mb


def test_a_cache_that_is_still_filling_is_not_called_a_leak() -> None:
    found = growth(series(lambda requests: 40_000_000 * (1 - np.exp(-requests / 30_000)), noise=50_000))
    assert found.verdict is Verdict.NOT_LONG_ENOUGH
    assert "filling" in found.sentence


@pytest.mark.parametrize("seed", range(10))
def test_noise_is_not_growth(seed: int) -> None:
    assert growth(series(lambda requests: 0, noise=300_000, seed=seed)).verdict is not Verdict.GROWS


def test_a_walk_without_direction_is_not_growth() -> None:
    called = 0
    for seed in range(40):
        walk = np.cumsum(np.random.default_rng(seed).normal(0, 200_000, 31))
        called += growth(series(lambda requests, walk=walk: walk[requests // 2_000])).verdict is Verdict.GROWS
    assert called <= 6


def test_one_step_is_not_growth() -> None:
    found = growth(series(lambda requests: 600_000 if requests > 50_000 else 0, each=2_000))
    assert found.verdict is not Verdict.GROWS


def test_too_little_is_said_to_be_too_little() -> None:
    found = growth(series(lambda requests: 1024 * requests, points=9))
    assert (found.verdict, found.slope_mb, found.r2) == (Verdict.NOT_LONG_ENOUGH, None, None)
    assert "9 points" in found.sentence
    assert growth([]).verdict is Verdict.NOT_LONG_ENOUGH
    few = growth(series(lambda requests: 1024 * requests, each=20, noise=100_000))
    assert few.verdict is Verdict.NOT_LONG_ENOUGH


@pytest.mark.parametrize(
    ("served", "where"),
    [
        (lambda number: 0, "first third"),
        (lambda number: 100 * max(0, number - 10), "first third"),
        (lambda number: 100 * min(number, 13), "last third"),
    ],
    ids=["nothing", "nothing at first", "nothing at last"],
)
def test_a_soak_in_which_nothing_was_served_says_nothing(served, where: str) -> None:
    found = growth([Drained(served(number), BASE + 1_000 * number) for number in range(20)])
    assert (found.verdict, found.slope_mb, found.low_mb, found.r2) == (Verdict.NOT_LONG_ENOUGH, None, None, None)
    assert found.sentence.endswith(f"no request was answered in the {where} of the points.")


def test_memory_that_shrinks_does_not_grow() -> None:
    assert growth(series(lambda requests: -500 * requests, noise=50_000)).verdict is Verdict.DOES_NOT_GROW
