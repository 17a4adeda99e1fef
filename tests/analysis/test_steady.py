"""Steady or not, on synthetic arrivals whose queue is known."""

import numpy as np
import pyarrow as pa
import pytest

from agentdyno.analysis.run_data import Requests, Window
from agentdyno.analysis.steady import BLOCKS, rise, trend

S = 1_000_000_000


def arrivals(rate: float, seconds: float, latency_ms: np.ndarray | float, outcome: str = "ok") -> Requests:
    count = int(rate * seconds)
    due = (np.arange(count) * S / rate).astype(np.int64)
    done = due + (np.broadcast_to(latency_ms, count) * 1e6).astype(np.int64)
    return Requests(
        pa.table(
            {
                "stage": ["measure"] * count,
                "outcome": [outcome] * count,
                "intended_ns": due,
                "sent_ns": due,
                "done_ns": done,
            }
        )
    )


def queue(rate: float, seconds: float, service_rps: float, seed: int) -> np.ndarray:
    """Latency at one server with exponential service times (Lindley's recursion), ms."""
    draw = np.random.default_rng(seed)
    count, free = int(rate * seconds), 0.0
    latencies = []
    for at in np.arange(count) / rate:
        free = max(free, at) + draw.exponential(1 / service_rps)
        latencies.append((free - at) * 1000)
    return np.array(latencies)


def test_equal_latencies_are_steady() -> None:
    found = trend(arrivals(50, 10, 20.0), Window(0, 10 * S))
    assert found.steady is True
    assert (found.latency_rising, found.in_flight_rising) == (False, False)


def test_a_queue_that_grows_is_not() -> None:
    count = 500
    found = trend(arrivals(50, 10, np.linspace(20, 400, count)), Window(0, 10 * S))
    assert found.steady is False
    assert found.latency_rising
    assert found.in_flight_rising
    assert found.latency_rise == pytest.approx(1.6, abs=0.3)


def test_a_queue_that_empties_is_no_reason_to_doubt() -> None:
    found = trend(arrivals(50, 10, np.linspace(400, 20, 500)), Window(0, 10 * S))
    assert found.steady is True
    assert found.latency_rise is not None
    assert found.latency_rise < 0


def test_a_rise_that_does_not_matter_is_steady() -> None:
    found = trend(arrivals(50, 10, np.linspace(20.0, 21.5, 500)), Window(0, 10 * S))
    assert found.steady is True


def test_too_few_arrivals_are_not_told() -> None:
    assert trend(arrivals(3, 10, 20.0), Window(0, 10 * S)).steady is None


def test_a_host_that_answers_nothing_is_seen_by_what_is_in_flight() -> None:
    found = trend(arrivals(20, 10, 10_000.0, outcome="timeout"), Window(0, 10 * S))
    assert found.steady is False
    assert found.latency_rise is None
    assert found.in_flight_rising


def test_real_queues_below_and_above_their_capacity() -> None:
    """At two thirds of it they are seldom called rising, at 115 % nearly always."""
    window = Window(0, 10 * S)
    below = [trend(arrivals(66, 10, queue(66, 10, 100, seed)), window).steady for seed in range(60)]
    above = [trend(arrivals(115, 10, queue(115, 10, 100, seed)), window).steady for seed in range(60)]
    assert below.count(False) <= 4
    assert above.count(False) >= 54


def test_chance_is_not_called_a_rise() -> None:
    draws = np.random.default_rng(1)
    rising = [rise(draws.exponential(10, BLOCKS), 0.0)[1] for _ in range(2000)]
    assert sum(rising) / len(rising) <= 0.015
    assert rise(np.arange(BLOCKS, dtype=float) + 1, 0.5) == (pytest.approx(9 / 5.5), True)
