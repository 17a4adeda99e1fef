"""`agentdyno top`: the running bench in the terminal, from the same metrics that Prometheus reads."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from math import ceil
from pathlib import Path

from agentdyno.contract.errors import UserError
from agentdyno.contract.run import ExitCode
from agentdyno.record.live import LiveRun, running
from agentdyno.report.live import folded, lines
from agentdyno.report.looks import Look, Looks, series
from agentdyno.rig.processes import fetch

_FETCH_S = 1.0
_REPORTS_S = 4.0  # with several workers the load reports every three seconds
_CLEAR = "\x1b[H\x1b[J"


class NoRun(UserError):
    """Nothing to look at; the text says where was looked and what to do."""


def top(wanted: str | None, runs: Sequence[Path], *, every_s: float, once: bool) -> ExitCode:
    """Show it until it ends or Ctrl-C; `once` as soon as there are rates to show.

    wanted: the beginning of a run's name; None: the newest. runs: see `running`. Raises NoRun.
    """
    found: LiveRun | None = _find(wanted, runs)
    looks: Looks | None = None
    taken = 0
    try:
        while found is not None:
            run, now = found, _look(found)
            if len(now.silent) == len(run.metrics):
                break  # all have gone: the load is over
            if looks is None:
                looks = Looks(now)
            else:
                looks.see(now)
            taken += 1
            if not once or looks.between.complete or taken > ceil(_REPORTS_S / every_s):
                _show(lines(f"{run.run_id}: {run.framework}, {run.scenario}", looks), whole=once)
                if once:
                    return ExitCode.VALID
            time.sleep(every_s)
            # Anew: a search or a sweep has another load, and sometimes another host, at each step.
            found = next((each for each in running(runs) if each.run_id == run.run_id), None)
    except KeyboardInterrupt:
        return ExitCode.VALID
    sys.stdout.write(f"The load of {run.run_id} is over.\n")
    return ExitCode.VALID


def _show(shown: list[str], *, whole: bool) -> None:
    """whole: as lines for a script also where a terminal is."""
    if sys.stdout.isatty() and not whole:
        sys.stdout.write(_CLEAR + "\n".join(folded(shown, shutil.get_terminal_size().columns)) + "\n")
    else:
        sys.stdout.write("\n".join(shown) + "\n\n")
    sys.stdout.flush()


def _find(wanted: str | None, runs: Sequence[Path]) -> LiveRun:
    found = running(runs)
    chosen = [run for run in found if wanted is None or run.run_id.startswith(Path(wanted).name)]
    if chosen:
        return chosen[0]
    if found:
        raise NoRun(f"No bench whose name begins with {wanted} runs; there are {', '.join(r.run_id for r in found)}.")
    raise NoRun(
        f"No bench runs under {' or '.join(map(str, runs))}. Start one in another terminal (make bench FRAMEWORK=...), "
        "or say where its run folder is with --runs."
    )


def _look(run: LiveRun) -> Look:
    parts, silent = [], []
    for role, url in run.metrics.items():
        try:
            parts.append(series(fetch(url, _FETCH_S).decode()))
        except (OSError, ValueError):  # nothing there, or something that is no metrics
            silent.append(role)
    return Look(time.monotonic(), tuple(parts), tuple(silent))
