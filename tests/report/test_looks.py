"""Rates between looks at a load whose workers report every three seconds, each in its own time."""

from itertools import count, takewhile

import pytest

from agentdyno.report.looks import Look, Looks, series

RATE = 200.0
CORES = 0.5
REPORT_S = 3.0


def at(now_s: float, phases_s: tuple[float, ...], silent: tuple[str, ...] = ()) -> Look:
    """A steady load and a steady host. phases_s: when each worker reports for the first time."""
    load = ["agentdyno_load_start_time_seconds 1.0"]
    ok = 0.0
    for worker, phase_s in enumerate(phases_s):
        if now_s >= phase_s:
            elapsed_s = phase_s + REPORT_S * ((now_s - phase_s) // REPORT_S)
            load.append(f'agentdyno_load_worker_elapsed_seconds{{worker="{worker}"}} {elapsed_s}')
            ok += elapsed_s * RATE / len(phases_s)
    load.append(f'agentdyno_load_requests_total{{stage="measure",outcome="ok"}} {ok}')
    rig = f'agentdyno_process_cpu_seconds_total{{role="host"}} {CORES * now_s}'
    texts = {"load": "\n".join(load) + "\n", "rig": rig + "\n"}
    return Look(now_s, tuple(series(text) for role, text in texts.items() if role not in silent), silent)


def ok_rate(looks: Looks) -> float | None:
    return looks.between.load.rate("agentdyno_load_requests_total", outcome="ok")


@pytest.mark.parametrize("every_s", [0.5, 2.0, 7.0])
@pytest.mark.parametrize("phases_s", [(0.0, 0.0), (0.0, 1.0), (0.1, 0.2), (0.0, 1.4, 2.9)])
def test_a_steady_rate_is_steady(phases_s: tuple[float, ...], every_s: float) -> None:
    looks = Looks(at(3.5, phases_s))
    seen = 0
    for now_s in takewhile(lambda now_s: now_s < 60, count(3.5 + every_s, every_s)):
        looks.see(at(now_s, phases_s))
        if now_s > 3.5 + REPORT_S:
            seen += 1
            assert ok_rate(looks) == pytest.approx(RATE)
            assert looks.between.rest.rate("agentdyno_process_cpu_seconds_total", role="host") == pytest.approx(CORES)
    assert seen > 5


def test_until_there_is_a_report_what_was_shown_stays_and_levels_are_new() -> None:
    looks = Looks(at(1.0, (0.0, 0.0)))
    looks.see(at(2.0, (0.0, 0.0)))
    assert not looks.between.complete
    looks.see(at(3.0, (0.0, 0.0)))
    shown = looks.between
    assert shown.complete
    looks.see(at(5.0, (0.0, 0.0)))
    assert looks.between is shown
    assert looks.now.at_s == 5.0


def test_a_load_that_does_not_answer_has_no_rate_and_then_one_over_all_the_time() -> None:
    looks = Looks(at(1.0, (0.0, 0.0)))
    looks.see(at(4.0, (0.0, 0.0)))
    looks.see(at(7.0, (0.0, 0.0), silent=("load",)))
    assert ok_rate(looks) is None
    assert looks.between.rest.rate("agentdyno_process_cpu_seconds_total", role="host") == pytest.approx(CORES)
    looks.see(at(10.0, (0.0, 0.0)))
    assert ok_rate(looks) == pytest.approx(RATE)


def test_a_counter_that_was_not_there_has_no_growth_but_the_loads() -> None:
    looks = Looks(at(1.0, (0.0,), silent=("rig",)))
    looks.see(at(4.0, (0.0,)))
    assert looks.between.rest.rate("agentdyno_process_cpu_seconds_total", role="host") is None
    before_the_load = Looks(Look(1.0, ()))
    before_the_load.see(at(4.0, (0.0,)))
    assert ok_rate(before_the_load) == pytest.approx(RATE)


@pytest.mark.parametrize(
    "text",
    ["<!DOCTYPE html>\n<html><body>Welcome</body></html>", '{"detail": "Not Found"}', "no", '{, =P{"<Ha\\e ,NYa_total'],
)
def test_what_is_no_exposition_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the parser's own words
        series(text)
