"""A worker's running counts: outcomes, requests in flight and their integral over the measurement window."""

from __future__ import annotations

from collections import Counter
from math import ceil

from agentdyno.contract.proof import Stage
from agentdyno.contract.run import Outcome, Second
from agentdyno.load.schedule import NS_PER_S

NS_PER_MS = 1_000_000


class InFlight:
    """How many requests are in flight, and the integral of that number over a window of time.

    The integral is kept as the number changes and not computed from latencies, so that Little's law, which
    relates the two, can find an error in either.
    """

    def __init__(self, start_ns: int, end_ns: int) -> None:
        self.count = 0
        self._start_ns = start_ns
        self._end_ns = end_ns
        self._since_ns = start_ns
        self._area_ns = 0

    def change(self, by: int, now_ns: int) -> None:
        """Note that `by` more requests (or, below zero, fewer) are in flight from `now_ns` on."""
        now_in_window_ns = min(max(now_ns, self._since_ns), self._end_ns)
        self._area_ns += self.count * (now_in_window_ns - self._since_ns)
        self._since_ns = now_in_window_ns
        self.count += by

    def area_s(self, now_ns: int) -> float | None:
        """The integral in request-seconds; None while the window has not passed."""
        if now_ns < self._end_ns:
            return None
        self.change(0, now_ns)
        return self._area_ns / NS_PER_S


class Tally:
    """Counts since the start, and the service times since the last report."""

    def __init__(self, in_flight: InFlight) -> None:
        self.in_flight = in_flight
        self.arrivals = 0
        self._outcomes: Counter[Outcome] = Counter()
        self._service_ns: list[int] = []

    def finished(self, outcome: Outcome, service_ns: int | None) -> None:
        """Count an arrival that has come to its outcome; service_ns is None when it was never sent."""
        self._outcomes[outcome] += 1
        if service_ns is not None:
            self._service_ns.append(service_ns)

    def report(self, elapsed_ns: int, stage: Stage) -> Second:
        """The live report of now. The next one starts with no service times."""
        recent = sorted(self._service_ns)
        self._service_ns = []
        return Second(
            elapsed_s=elapsed_ns / NS_PER_S,
            stage=stage.value,
            arrivals=self.arrivals,
            ok=self._outcomes[Outcome.OK],
            failed=self._outcomes[Outcome.FAILED],
            timeout=self._outcomes[Outcome.TIMEOUT],
            rejected=self._outcomes[Outcome.REJECTED],
            dropped=self._outcomes[Outcome.DROPPED],
            in_flight=self.in_flight.count,
            p50_ms=_nearest_rank_ms(recent, 50),
            p99_ms=_nearest_rank_ms(recent, 99),
        )


def _nearest_rank_ms(ordered_ns: list[int], percent: int) -> float | None:
    if not ordered_ns:
        return None
    return ordered_ns[ceil(len(ordered_ns) * percent / 100) - 1] / NS_PER_MS
