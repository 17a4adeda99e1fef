"""The check of what scrapes cost: each arrival belongs to the window in which it was due."""

import pyarrow as pa
import pytest

from agentdyno.selfcheck.check import CheckFailed
from agentdyno.selfcheck.scrapes import Seen, Window, added, noise, ratio, read_windows

MS = 1_000_000
T0 = 5_000 * MS


def window(number: int, *, scraped: bool, host_cpu_ns: int = 100) -> Window:
    """Windows of 100 ms one after the other from t0 on, two in a pair."""
    begin = T0 + number * 100 * MS
    return Window(number // 2, scraped, begin, begin + 100 * MS, host_cpu_ns, 50)


def requests(late_ms: list[int], outcome: str = "ok") -> pa.Table:
    """Ten arrivals in each 100 ms, all of a window as late as said, each answered 3 ms after it was sent."""
    due = [(number * 100 + each * 10) * MS for number in range(len(late_ms)) for each in range(10)]
    sent = [at + late_ms[at // (100 * MS)] * MS for at in due]
    done = [at + 3 * MS for at in sent]
    outcomes = ["ok"] * (len(due) - 1) + [outcome]
    return pa.table({"intended_ns": due, "sent_ns": sent, "done_ns": done, "outcome": outcomes})


def late(seen: Seen) -> float:
    return seen.late_p99_ms


def test_what_scrapes_add_is_paired() -> None:
    """The scraped one comes first in one pair and last in the other; the second pair is disturbed as a whole."""
    windows = [window(0, scraped=True), window(1, scraped=False), window(2, scraped=False), window(3, scraped=True)]
    seen = read_windows(requests([3, 1, 40, 44]), T0, windows)
    assert [it.late_p99_ms for it in seen] == [3, 1, 40, 44]
    assert {it.service_p99_ms for it in seen} == {3}
    assert added(seen, late) == 3  # of 2 and 4
    assert noise(seen, late) == 39


def test_cpu_is_a_ratio_of_the_same_pair() -> None:
    windows = [
        window(0, scraped=True, host_cpu_ns=103),
        window(1, scraped=False),
        window(2, scraped=False, host_cpu_ns=200),
        window(3, scraped=True, host_cpu_ns=202),
    ]
    seen = read_windows(requests([0, 0, 0, 0]), T0, windows)
    assert ratio(seen, lambda it: it.window.host_cpu_ns) == pytest.approx(1.02)


def test_a_window_with_a_failure_is_of_no_use() -> None:
    with pytest.raises(CheckFailed, match="too busy"):
        read_windows(requests([0, 0], "timeout"), T0, [window(1, scraped=False)])
    assert read_windows(requests([0, 0], "timeout"), T0, [window(0, scraped=False)])
