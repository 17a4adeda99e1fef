"""Series over versions: what belongs together and in which order, and what is left out and said."""

from pathlib import Path

import pytest

from agentdyno.analysis.history import Found, HistoryError, read_history
from agentdyno.analysis.metrics import METRICS
from agentdyno.contract.campaign import LoadName
from agentdyno.contract.summary import Framework
from tests.analysis.campaigns import Planted
from tests.analysis.gates import campaign, change_manifests, protocol_only
from tests.analysis.planted_run import Figures, load_plan, write_run

CPU = next(metric for metric in METRICS if metric.name == "cpu_per_request")
RESTED = next(metric for metric in METRICS if metric.name == "rss_rested")


def run(
    parent: Path, name: str, version: str | None, day: int = 1, cpu_ms: float = 2.0, rate: float = 20.0, lost: int = 0,
    who: str = "lean", commit: str | None = None,
) -> Path:  # fmt: skip
    write_run(
        parent / name,
        load_plan(rate, 50, 1, traced=False),
        Framework(who, version, "default", "llm"),
        Figures(cpu_ms=cpu_ms, lost=lost),
        1,
        environment={},
        rig_environment={},
        started_utc=f"2026-01-{day:02}T00:00:00+00:00",
        commit=commit,
    )
    return parent / name


def read(folder: Path, **more: object) -> Found:
    return read_history(folder, CPU, **more)  # type: ignore[arg-type]


def test_points_are_ordered_by_version_and_then_by_date(tmp_path: Path) -> None:
    for name, version, day in (("a", "1.10.0", 1), ("b", "1.9.0", 3), ("c", "1.10.0rc1", 4), ("d", "1.9.0", 2)):
        run(tmp_path / "deep" / "er", name, version, day)
    (series,) = read(tmp_path).series
    assert [(point.version, point.where) for point in series.points] == [
        ("1.9.0", "d"), ("1.9.0", "b"), ("1.10.0rc1", "c"), ("1.10.0", "a"),
    ]  # fmt: skip
    assert series.by_version
    assert series.steps == ()


@pytest.mark.parametrize("odd", [None, "nightly", "<b>1</b>"])
def test_one_that_has_no_version_that_can_be_ordered_puts_all_in_the_order_of_time(
    tmp_path: Path, odd: str | None
) -> None:
    run(tmp_path, "new", "1.0", 3)
    run(tmp_path, "old", odd, 1, commit="1" * 40)
    (series,) = read(tmp_path).series
    assert [point.where for point in series.points] == ["old", "new"]
    assert not series.by_version


def test_a_planted_step_is_marked(tmp_path: Path) -> None:
    for number in range(12):
        run(tmp_path, f"run-{number:02}", f"1.{number}", number + 1, cpu_ms=(2.0 if number < 6 else 2.5) + number / 1e4)
    (series,) = read(tmp_path).series
    (step,) = series.steps
    assert series.points[step.at].version == "1.6"
    assert step.ratio.median == pytest.approx(1.25, abs=0.01)


def test_what_is_not_comparable_stands_apart(tmp_path: Path) -> None:
    run(tmp_path, "a", "1")
    run(tmp_path, "b", "2")
    run(tmp_path, "other-rate", "3", rate=40.0)
    change_manifests(run(tmp_path, "other-workload", "4"), workload_hash="0" * 16)
    change_manifests(run(tmp_path, "other-machine", "5"), cpu_model="another")
    change_manifests(run(tmp_path, "other-python", "6"), python="3.14.0")
    run(tmp_path, "other-framework", "7", who="fat")
    assert sorted(sorted(point.where for point in series.points) for series in read(tmp_path).series) == [
        ["a", "b"], ["other-framework"], ["other-machine"], ["other-python"], ["other-rate"], ["other-workload"],
    ]  # fmt: skip
    only = read(tmp_path, frameworks=("fat",)).series
    assert [series.label for series in only] == ["fat"]


def test_a_campaign_is_one_point_of_each_framework_and_load(tmp_path: Path) -> None:
    for name, cpu_ms in (("one", 20.0), ("two", 30.0)):
        campaign(tmp_path, name, Planted("slow", cpu_ms=cpu_ms, cpu_noise=0.0), rounds=3, loads=list(LoadName))
    found = {(series.label, series.load): series for series in read(tmp_path).series}
    assert set(found) == {(label, load) for label in ("bare", "slow") for load in LoadName}  # bare#2 is none
    points = found["slow", LoadName.STEADY].points
    assert sorted((point.where, point.rounds) for point in points) == [("one", 3), ("two", 3)]
    assert sorted(point.value for point in points) == pytest.approx([20.0, 30.0], rel=0.1)
    (only,) = read(tmp_path, load=LoadName.STEADY, frameworks=("slow",)).series
    assert only.load is LoadName.STEADY


def test_what_cannot_be_used_is_left_out_and_said(tmp_path: Path) -> None:
    run(tmp_path, "good", "1")
    run(tmp_path, "invalid", "2", lost=7)
    protocol_only(run(tmp_path, "protocol", "2"))
    (run(tmp_path, "broken", "3") / "manifest.json").write_text("{", encoding="utf-8")
    (tmp_path / "campaign" / "runs").mkdir(parents=True)
    (tmp_path / "campaign" / "campaign.json").write_text("[]", encoding="utf-8")
    found = read(tmp_path)
    assert [[point.where for point in series.points] for series in found.series] == [["good"]]
    notes = "\n".join(found.notes)
    assert "Left out: invalid is invalid." in notes
    assert "Left out: protocol is for no comparison (protocol_only)" in notes
    assert "broken/manifest.json is not what this version writes" in notes
    assert "campaign.json is not what this version writes" in notes


def test_nothing_to_draw_is_a_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="There is no folder"):
        read(tmp_path / "nothing")
    with pytest.raises(HistoryError, match="there is nothing to draw: no valid run"):
        read(tmp_path)
    run(tmp_path, "a", "1")
    with pytest.raises(HistoryError, match="1 series, none with rss_rested"):
        read_history(tmp_path, RESTED)


def test_where_nothing_is_left_it_is_said_what_was_left_out(tmp_path: Path) -> None:
    protocol_only(run(tmp_path, "protocol", "2"))
    with pytest.raises(HistoryError, match=r"nothing to draw: no valid run\. Left out: protocol is for no comparison"):
        read(tmp_path)
