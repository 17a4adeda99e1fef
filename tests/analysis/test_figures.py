"""Figures on tables small enough to work out by hand: the edges of the window, processes that come and go."""

import pyarrow as pa
import pytest

from agentdyno.analysis import figures
from agentdyno.analysis.run_data import Requests, Window
from agentdyno.contract.proof import Stage
from agentdyno.contract.run import Outcome
from agentdyno.record.folder import REQUEST_COLUMNS

WINDOW = Window(100, 200)


def requests(*times: tuple[int | None, int | None], stage: str = "measure", outcome: Outcome = Outcome.OK) -> Requests:
    """Sent and done in ns, due when sent."""
    columns: dict[str, pa.Array] = {name: pa.array([None] * len(times), pa.int64()) for name in REQUEST_COLUMNS}
    columns["index"] = pa.array(range(len(times)), pa.int64())
    columns["intended_ns"] = columns["sent_ns"] = pa.array([sent for sent, _ in times], pa.int64())
    columns["done_ns"] = pa.array([done for _, done in times], pa.int64())
    columns["stage"] = pa.array([stage] * len(times), pa.string())
    columns["outcome"] = pa.array([outcome.value] * len(times), pa.string())
    return Requests(pa.table(columns))


@pytest.mark.parametrize(
    ("times", "most"),
    [
        ([(100, 110), (105, 115), (108, 109)], 3),
        ([(100, 110), (110, 120)], 1),  # the departure first
        ([(10, 90), (20, 90), (150, 160)], 1),  # what ended before the window
        ([(10, 120), (20, 130), (110, 140)], 3),  # what began before the window and lasts into it
        ([(150, 300), (160, 300), (199, 300), (200, 300), (210, 300)], 3),  # what began at its end or later
        ([(50, 100)], None),
        ([(150, 150)], None),
        ([(None, None)], None),
        ([(150, None)], None),
    ],
)
def test_in_flight_max(times: list[tuple[int | None, int | None]], most: int | None) -> None:
    assert figures.in_flight_max(requests(*times), WINDOW) == most


@pytest.mark.parametrize(
    ("times", "mean"),
    [([(100, 200)], 1.0), ([(0, 150), (150, 900)], 1.0), ([(110, 135)], 0.25), ([(0, 100), (200, 300)], 0.0)],
)
def test_mean_in_flight(times: list[tuple[int, int]], mean: float) -> None:
    assert figures.mean_in_flight(requests(*times), WINDOW) == mean


def test_finished_in_window_counts_answers_of_any_stage_that_ended_in_it() -> None:
    times = [(0, 99), (0, 100), (150, 199), (150, 200)]
    assert figures.finished_in_window(requests(*times, stage="warmup"), WINDOW) == 2
    assert figures.finished_in_window(requests(*times, outcome=Outcome.FAILED), WINDOW) == 0


def test_achieved_rate_is_of_the_gaps() -> None:
    made = requests((100, 101), (110, 111), (130, 131))
    assert figures.load(made, 1.0, WINDOW).achieved_rate == 2e9 / 30
    assert figures.load(requests((100, 101)), 1.0, WINDOW).achieved_rate is None
    assert figures.load(requests((100, 101), (100, 102)), 1.0, WINDOW).achieved_rate is None


def test_reasons_come_with_the_most_frequent_first() -> None:
    made = requests(*[(100, 101)] * 5, outcome=Outcome.FAILED)
    texts = pa.array(["a", None, "b", "b", "c"])
    made = Requests(made._table.set_column(made._table.column_names.index("reason"), "reason", texts))
    assert list(figures.load(made, 1.0, WINDOW).failure_reasons.items()) == [("b", 2), ("a", 1), ("c", 1)]
    assert figures.stage_counts(made, Stage.MEASURE).failed == 5


Row = tuple[int, int, int, int | None, int | None, float | None]


def resources(*rows: Row, role: str = "host", clock: list[float | None] | None = None) -> pa.Table:
    """(look, time in ns, pid, RSS, PSS, CPU in s by ticks). clock: the same by the kernel's clock, None: not read."""
    names = ("look", "monotonic_ns", "pid", "rss_bytes", "pss_bytes", "cpu_user_s")
    types = (pa.int64(),) * 5 + (pa.float64(),)
    columns = {
        name: pa.array([row[i] for row in rows], kind) for i, (name, kind) in enumerate(zip(names, types, strict=True))
    }
    columns["role"] = pa.array([role] * len(rows), pa.string())
    columns["cpu_system_s"] = pa.array([None if row[5] is None else 0.0 for row in rows], pa.float64())
    columns["cpu_s"] = pa.array(clock or [None] * len(rows), pa.float64())
    return pa.table(columns)


def cpu(*rows: tuple[int, int, float | None]) -> float | None:
    """Of (time, pid, CPU) over the window."""
    return figures.cpu_seconds(resources(*((0, t, pid, 1, 1, s) for t, pid, s in rows)), "host", (100, 200))


def test_cpu_is_interpolated_at_the_windows_borders() -> None:
    assert cpu((50, 1, 1.0), (150, 1, 2.0), (250, 1, 6.0)) == pytest.approx(4.0 - 1.5)


def test_cpu_between_two_samples_is_no_matter() -> None:
    assert cpu((100, 1, 1.0), (200, 1, 3.0)) == 2.0


def test_cpu_is_by_the_kernels_clock_and_not_by_ticks() -> None:
    rows = ((0, 100, 1, 1, 1, 1.0), (1, 150, 1, 1, 1, 1.0), (2, 200, 1, 1, 1, 1.01))
    assert figures.cpu_seconds(resources(*rows, clock=[1.001, 1.004, 1.0085]), "host", (100, 200)) == pytest.approx(
        0.0075
    )


def test_cpu_never_mixes_the_clock_with_ticks() -> None:
    rows = ((0, 100, 1, 1, 1, 1.0), (1, 150, 1, 1, 1, 1.0), (2, 200, 1, 1, 1, 1.01))
    assert figures.cpu_seconds(resources(*rows, clock=[1.5, 1.6, None]), "host", (100, 200)) == pytest.approx(0.01)


def test_cpu_of_a_process_that_began_in_the_window_counts_from_nothing() -> None:
    assert cpu((90, 1, 7.0), (210, 1, 7.0), (140, 2, 0.5), (180, 2, 0.9)) == pytest.approx(0.9)


def test_cpu_of_a_process_that_is_only_seen_once_counts_when_it_began_in_the_window() -> None:
    assert cpu((90, 1, 7.0), (210, 1, 7.0), (140, 2, 0.5)) == 0.5


def test_cpu_of_a_process_that_was_gone_before_the_window_is_none_of_it() -> None:
    assert cpu((50, 1, 7.0), (210, 1, 7.0), (50, 2, 1.0), (90, 2, 3.0)) == 0.0


@pytest.mark.parametrize("rows", [[(101, 1, 1.0), (250, 1, 3.0)], [(50, 1, 1.0), (199, 1, 3.0)], [(150, 1, 1.0)]])
def test_cpu_is_not_known_where_the_samples_do_not_reach_around_the_window(rows: list) -> None:  # type: ignore[type-arg]
    assert cpu(*rows) is None


def test_cpu_is_not_known_when_one_process_could_not_be_read() -> None:
    assert cpu((50, 1, 1.0), (250, 1, 3.0), (50, 2, None), (250, 2, None)) is None


def test_cpu_of_a_role_that_nobody_has_is_not_known() -> None:
    assert figures.cpu_seconds(resources((0, 50, 1, 1, 1, 1.0), role="rig"), "host", (100, 200)) is None


@pytest.mark.parametrize(
    ("rows", "rss", "pss"),
    [
        # one process: each look is its own sum
        ([(0, 0, 1, 50, 40, 0.0), (1, 1, 1, 70, None, 0.0)], 70, 40),
        # two at one look; the larger ones of different looks are not added
        ([(0, 0, 1, 90, 80, 0.0), (1, 1, 1, 60, 50, 0.0), (1, 2, 2, 40, 10, 0.0), (2, 3, 2, 99, 5, 0.0)], 100, 80),
        # a process that could not be read makes its look useless, not small
        ([(0, 0, 1, 50, 40, 0.0), (0, 0, 2, 50, None, 0.0), (1, 1, 1, 30, 20, 0.0)], 100, 20),
        ([(0, 0, 1, None, None, 0.0)], None, None),
        ([], None, None),
    ],
)
def test_memory_of_a_tree_is_summed_at_one_moment(rows: list[Row], rss: int | None, pss: int | None) -> None:
    table = resources(*rows)
    assert figures._tree_peak(table, "rss_bytes") == rss
    assert figures._tree_peak(table, "pss_bytes") == pss
