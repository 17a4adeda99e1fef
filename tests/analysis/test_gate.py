"""The gate: fails on a planted regression and on nothing else, and compares nothing that was measured unlike."""

import re
from pathlib import Path

import pytest

from agentdyno.analysis.gate import By, Gate, Outcome, gate
from agentdyno.analysis.limits import DEFAULT_MAX, LimitError, read_limits
from agentdyno.analysis.sides import SideError, read_side
from agentdyno.contract.campaign import LoadName
from agentdyno.contract.run import ExitCode
from agentdyno.record.folder import FolderError
from tests.analysis.campaigns import Planted, write_campaign
from tests.analysis.gates import campaign, change_manifests, protocol_only, runs

SLOW = Planted("slow", cpu_ms=20.0, latency_ms=30.0, rss_mb=300.0)
WORSE = Planted("slow", cpu_ms=28.0, latency_ms=30.0, rss_mb=300.0)


def check(baseline: Path, candidate: Path, *at_most: str, at_least: tuple[str, ...] = (), **more: object) -> Gate:
    limits = read_limits(at_most, at_least)
    return gate(read_side(baseline), read_side(candidate), limits, **more)  # type: ignore[arg-type]


# limits


def test_limits_in_words() -> None:
    more, less = read_limits(["p99=+20%"], ["goodput=-10%"])
    assert (more.metric.name, more.ratio, more.upper, str(more)) == ("p99", 1.2, True, "at most +20 %")
    assert (less.metric.name, less.ratio, less.upper, str(less)) == ("goodput", 0.9, False, "at least -10 %")
    assert [limit.ratio for limit in read_limits(["p99=5%", " rss_peak=-2.5 % "], [])] == [1.05, 0.975]


def test_without_limits_the_usual_alarm_holds() -> None:
    assert [(limit.metric.name, limit.percent) for limit in read_limits([], [])] == [("p95", 20.0), ("rss_peak", 20.0)]
    assert DEFAULT_MAX == ("p95=+20%", "rss_peak=+20%")


@pytest.mark.parametrize(
    ("at_most", "at_least", "sentence"),
    [
        ("p98=+20%", None, r"^--max: there is no metric 'p98'\. There are: goodput, cpu_per_request, idle_cpu, p50"),
        ("p99", None, r"^--max 'p99' is no limit\. Write a metric and a change in percent: --max p99=\+20%\."),
        ("p99=20", None, "is no limit"),
        ("p99=nan%", None, "is no limit"),
        ("p99=+1e9%", None, "is no limit"),
        ("", None, "is no limit"),
        ("p99=-100%", None, "no figure can fall by 100 %"),
        ("goodput=+10%", None, r"it is better when it is higher\. Write --min goodput=-10%\."),
        (None, "p99=-10%", r"it is better when it is lower\. Write --max p99=\+10%\."),
    ],
)
def test_a_limit_that_says_nothing(at_most: str | None, at_least: str | None, sentence: str) -> None:
    with pytest.raises(LimitError, match=sentence):
        read_limits([] if at_most is None else [at_most], [] if at_least is None else [at_least])


# what fails and what does not


def test_a_planted_regression_fails_and_what_has_not_changed_passes(tmp_path: Path) -> None:
    found = check(
        campaign(tmp_path, "a", SLOW),
        campaign(tmp_path, "b", WORSE),
        *("cpu_per_request=+20%", "rss_peak=+20%", "p50=+20%"),
        at_least=("goodput=-10%",),
    )
    assert [row.outcome for row in found.rows] == [Outcome.FAIL, Outcome.PASS, Outcome.PASS, Outcome.PASS]
    assert found.exit_code is ExitCode.GATE_FAILED
    assert {row.label for row in found.rows} == {"slow"}  # neither the control nor its double is gated
    cpu = found.rows[0]
    assert cpu.decided_by is By.CONTROL
    assert cpu.by_control is not None
    assert cpu.by_control.median == pytest.approx(1.4, abs=0.05)
    assert cpu.sentence == "the whole interval is beyond the limit"


def test_an_interval_that_covers_the_limit_does_not_fail(tmp_path: Path) -> None:
    noisy = Planted("slow", cpu_ms=23.5, cpu_noise=0.15)
    found = check(campaign(tmp_path, "a", SLOW), campaign(tmp_path, "b", noisy), "cpu_per_request=+20%")
    (row,) = found.rows
    assert row.deciding.low is not None
    assert row.deciding.high is not None
    assert row.deciding.low < 1.2 < row.deciding.high
    assert (row.outcome, found.exit_code) == (Outcome.PASS, ExitCode.VALID)
    assert "the interval covers it: more rounds would tell" in row.sentence


def test_less_is_judged_for_what_is_better_when_it_is_more(tmp_path: Path) -> None:
    loads = {"loads": [LoadName.STANDARD]}
    full, lame = Planted("x", capacity_rps=150.0), Planted("x", capacity_rps=100.0)
    found = check(
        campaign(tmp_path, "a", full, **loads), campaign(tmp_path, "b", lame, **loads), at_least=("goodput=-10%",)
    )
    (row,) = found.rows
    assert (row.load, row.outcome, row.decided_by) == (LoadName.STANDARD, Outcome.FAIL, By.RAW)


def test_a_slower_machine_is_cancelled_by_the_control(tmp_path: Path) -> None:
    slowed = [Planted("bare", cpu_ms=4.0), Planted("slow", cpu_ms=40.0)]
    ours = campaign(tmp_path, "a", SLOW)
    theirs = write_campaign(
        tmp_path, slowed, 5, requests=100, loads=[LoadName.STEADY], probes=False, traced=False, campaign_id="b"
    ).path
    change_manifests(theirs, cpu_model="a slower one")
    found = check(ours, theirs, "cpu_per_request=+20%")
    (row,) = found.rows
    assert row.raw.median == pytest.approx(2.0, abs=0.1)
    assert row.by_control is not None
    assert row.by_control.median == pytest.approx(1.0, abs=0.05)
    assert (row.outcome, row.decided_by) == (Outcome.PASS, By.CONTROL)
    assert found.warnings == ("The machine is not the same: processor a processor and a slower one.",)


def test_memory_is_not_divided_by_the_controls(tmp_path: Path) -> None:
    """The control's megabytes are no measure of the machine: were the host's own twice as many, it would hide much."""
    found = check(campaign(tmp_path, "a", SLOW), campaign(tmp_path, "b", SLOW), "rss_peak=+20%")
    assert found.rows[0].decided_by is By.RAW


# what cannot be told


def test_single_runs_have_no_interval(tmp_path: Path) -> None:
    ours, theirs = (runs(tmp_path, name, 1) / "run-0" for name in "ab")
    found = check(ours, theirs, "cpu_per_request=+20%")
    (row,) = found.rows
    assert (row.outcome, found.exit_code) == (Outcome.CANNOT_TELL, ExitCode.INVALID_RUN)
    assert row.raw.median == pytest.approx(1.0, abs=0.1)
    assert row.raw.low is None
    assert row.sentence == "1 and 1 rounds give no interval; 4 on either side do"


def test_folders_of_runs_are_compared_as_they_are(tmp_path: Path) -> None:
    ours, theirs = runs(tmp_path, "a", 4), runs(tmp_path, "b", 4, cpu_ms=26.0)
    found = check(ours, theirs, "cpu_per_request=+20%")
    assert [(row.outcome, row.decided_by, row.load) for row in found.rows] == [(Outcome.FAIL, By.RAW, None)]
    assert check(ours, theirs, "cpu_per_request=+50%").exit_code is ExitCode.VALID


def test_another_machine_without_a_control_says_nothing_of_time_but_of_memory(tmp_path: Path) -> None:
    ours, theirs = runs(tmp_path, "a", 4), runs(tmp_path, "b", 4)
    change_manifests(theirs, cores_usable=64)
    found = check(ours, theirs, "cpu_per_request=+20%", "rss_peak=+20%", at_least=("goodput=-10%",))
    assert [row.outcome for row in found.rows] == [Outcome.CANNOT_TELL, Outcome.PASS, Outcome.CANNOT_TELL]
    assert "the machines differ, and the control was not measured beside" in found.rows[0].sentence


def test_invalid_runs_are_left_out_and_said(tmp_path: Path) -> None:
    found = check(runs(tmp_path, "a", 4), runs(tmp_path, "b", 4, lost=7), "cpu_per_request=+20%")
    assert found.exit_code is ExitCode.INVALID_RUN
    assert found.rows[0].candidate is None
    assert "4 invalid runs of slow were left out of the candidate." in found.warnings


def test_a_figure_that_was_not_measured_cannot_be_told(tmp_path: Path) -> None:
    found = check(runs(tmp_path, "a", 4), runs(tmp_path, "b", 4), "rss_rested=+20%")
    assert found.rows[0].sentence == "there is no valid run of it that measured this on both sides"
    assert found.exit_code is ExitCode.INVALID_RUN


def test_a_failure_counts_more_than_what_cannot_be_told(tmp_path: Path) -> None:
    found = check(
        runs(tmp_path, "a", 4), runs(tmp_path, "b", 4, cpu_ms=40.0), "rss_rested=+20%", "cpu_per_request=+20%"
    )
    assert found.exit_code is ExitCode.GATE_FAILED


# what is refused


@pytest.mark.parametrize(
    ("facts", "what"),
    [
        ({"rate": 40.0}, r"load's rate 20\.0 and 40\.0"),
        ({"admission": 8}, "admission None and 8"),
        ({"schema_version": 2}, "schema 1 and 2"),
    ],
)
def test_what_was_measured_unlike_is_refused_with_what_differs(
    tmp_path: Path, facts: dict[str, object], what: str
) -> None:
    with pytest.raises(SideError, match=f"^slow was not measured alike in .*: .*{what}"):
        check(runs(tmp_path, "a", 4), runs(tmp_path, "b", 4, **facts), "p50=+20%")


MINE = {"kind": "vllm", "model": "m", "url": "http://gpu/v1"}


@pytest.mark.parametrize(
    ("one", "other", "what"),
    [
        ({"stated": "a b"}, {"stated": "a c"}, "backend's stated a b and a c"),
        ({}, {"stated": "a c"}, "backend's stated None and a c"),
        ({"settings": "--x=1"}, {"settings": "--x=2"}, "backend's settings --x=1 and --x=2"),
        ({"revision": "1"}, {"revision": "2"}, "backend's revision 1 and 2"),
    ],
)
def test_a_server_with_other_settings_is_refused(
    tmp_path: Path, one: dict[str, str], other: dict[str, str], what: str
) -> None:
    ours, theirs = runs(tmp_path, "a", 4), runs(tmp_path, "b", 4)
    change_manifests(ours, backend=MINE | one)
    change_manifests(theirs, backend=MINE | other)
    with pytest.raises(SideError, match=what):
        check(ours, theirs)


def test_what_a_server_tells_of_itself_is_a_warning_where_it_differs(tmp_path: Path) -> None:
    ours, theirs = runs(tmp_path, "a", 4), runs(tmp_path, "b", 4)
    change_manifests(ours, backend=MINE | {"told": {"version": "0.30.0", "block_size": "16"}})
    change_manifests(theirs, backend=MINE | {"told": {"version": "0.31.0", "block_size": "16"}})
    assert "The backend, by its own word, is not the same: version 0.30.0 and 0.31.0." in check(ours, theirs).warnings
    change_manifests(ours, backend=MINE)
    told = "version None and 0.31.0; block_size None and 16"
    assert f"The backend, by its own word, is not the same: {told}." in check(ours, theirs).warnings


def test_another_workload_is_refused(tmp_path: Path) -> None:
    ours, theirs = runs(tmp_path, "a", 4), runs(tmp_path, "b", 4)
    change_manifests(theirs, workload_hash="0" * 16)
    with pytest.raises(SideError, match=r"workload [0-9a-f]{16} and 0{16}"):
        check(ours, theirs)


def test_runs_of_two_kinds_in_one_folder_are_not_joined(tmp_path: Path) -> None:
    runs(tmp_path, "a", 2)
    extra = runs(tmp_path / "more", "a", 3, rate=40.0) / "run-2"
    extra.rename(tmp_path / "a" / "run-2")
    with pytest.raises(SideError, match=r"^The runs of slow in .* cannot be joined, for they differ: load's rate"):
        read_side(tmp_path / "a")


def test_runs_that_only_show_the_path_are_for_no_comparison(tmp_path: Path) -> None:
    ours, apart = runs(tmp_path, "a", 4), protocol_only(runs(tmp_path, "b", 4))
    for one, other in ((ours, apart), (apart, apart), (apart / "run-0", apart / "run-1")):
        with pytest.raises(SideError, match=r"holds nothing that may be compared\. run-0 is for no comparison \(proto"):
            check(one, other)
    theirs = runs(tmp_path, "c", 4)
    for number in (4, 5):
        (apart / f"run-{number - 4}").rename(theirs / f"run-{number}")
    (series,) = read_side(theirs).series
    assert (len(series.runs), series.invalid) == (4, 0)
    said = "Runs of slow left out of the {}, for no comparison is made with them (protocol_only): 2."
    assert said.format("candidate") in check(ours, theirs, "p50=+20%").warnings
    assert said.format("baseline") in check(theirs, ours, "p50=+20%").warnings
    (apart / "run-2").rename(ours / "run-4")
    assert len(check(ours, theirs, "p50=+20%").warnings) == 2


def test_runs_that_only_show_the_path_are_said_where_their_framework_is_asked_for(tmp_path: Path) -> None:
    ours, apart = runs(tmp_path, "a", 4), protocol_only(runs(tmp_path, "b", 1, who="other"))
    (apart / "run-0").rename(ours / "run-4")
    plain = runs(tmp_path, "c", 4)
    assert "left out" in " ".join(check(ours, plain, "p50=+20%").warnings)
    assert "left out" not in " ".join(check(ours, plain, "p50=+20%", frameworks=("slow",)).warnings)
    with pytest.raises(SideError, match=r"^other is not on both .* Runs of other left out of the baseline, for"):
        check(ours, plain, frameworks=("other",))


def test_sides_without_a_framework_in_common(tmp_path: Path) -> None:
    ours, theirs = runs(tmp_path, "a", 1), runs(tmp_path, "b", 1, who="<b>x</b>")
    with pytest.raises(SideError, match=r"^The two sides have no framework in common: .* has slow; .* has <b>x</b>\.$"):
        check(ours, theirs)
    with pytest.raises(SideError, match=r"^fast is not on both sides"):
        check(ours, ours, frameworks=("fast",))


def test_a_load_that_was_not_measured(tmp_path: Path) -> None:
    ours = campaign(tmp_path, "a", SLOW, rounds=1)
    with pytest.raises(SideError, match="has no run of slow under the standard load"):
        check(ours, ours, load=LoadName.STANDARD)


def test_folders_that_hold_nothing(tmp_path: Path) -> None:
    with pytest.raises(SideError, match="There is no folder"):
        read_side(tmp_path / "nothing")
    with pytest.raises(SideError, match=re.escape("holds no run with a summary.json")):
        read_side(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "summary.json").write_text("{}", encoding="utf-8")
    with pytest.raises(FolderError, match=r"manifest\.json cannot be read: No such file"):
        read_side(tmp_path)
    (tmp_path / "run" / "manifest.json").write_text('{"run_id": 1}', encoding="utf-8")
    with pytest.raises(FolderError, match="is not what this version writes"):
        read_side(tmp_path)
