"""Both clocks at one moment, also where the process had to wait for its core between the two."""

import time

import pytest

from agentdyno.emit import clocks
from agentdyno.emit.clocks import both_clocks

UNIX_NS = 1_700_000_000 * 10**9


class Waiting:
    """A machine whose program waits a second before a reading of a clock, but for some of them."""

    def __init__(self, quick: range) -> None:
        self.now_ns = 0
        self.readings = 0
        self._quick = quick

    def _read(self) -> None:
        self.readings += 1
        self.now_ns += 40 if self.readings in self._quick else 10**9

    def monotonic_ns(self) -> int:
        self._read()
        return self.now_ns

    def time_ns(self) -> int:
        self._read()
        return UNIX_NS + self.now_ns


@pytest.mark.parametrize("first", [1, 4, 22, 46])
def test_one_look_that_was_not_disturbed_is_enough(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "time", Waiting(range(first, first + 3)))
    monotonic_ns, unix_ns = both_clocks()
    assert unix_ns - monotonic_ns == UNIX_NS


def test_the_real_clocks_differ_by_the_same_each_time() -> None:
    first, again = (unix_ns - monotonic_ns for monotonic_ns, unix_ns in (both_clocks(), both_clocks()))
    assert first == pytest.approx(time.time_ns() - time.monotonic_ns(), abs=5e9)
    assert abs(first - again) < 5_000_000  # a slew of the wall clock is 0.5 ms a second at most
