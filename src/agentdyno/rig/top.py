"""`agentdyno top`: the running bench in the terminal, from the same metrics that Prometheus reads."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

from agentdyno.contract.errors import UserError
from agentdyno.contract.run import ExitCode
from agentdyno.record.live import LiveRun, running
from agentdyno.report.live import Look, folded, lines, look
from agentdyno.rig.processes import fetch

_FETCH_S = 1.0
_CLEAR = "\x1b[H\x1b[J"


class NoRun(UserError):
    """Nothing to look at; the text says where was looked and what to do."""


def top(wanted: str | None, runs: Path, *, every_s: float, once: bool) -> ExitCode:
    """Show it until it ends or Ctrl-C. wanted: the beginning of a run's name; None: the newest. Raises NoRun."""
    run = _find(wanted, runs)
    title = f"{run.run_id}: {run.framework}, {run.scenario}"
    tty = sys.stdout.isatty() and not once
    before: Look | None = None
    try:
        while True:
            now = _look(run)
            if len(now.silent) == len(run.metrics):
                break  # all have gone: the load is over
            shown = lines(title, now, before)
            if tty:
                sys.stdout.write(_CLEAR + "\n".join(folded(shown, shutil.get_terminal_size().columns)) + "\n")
            else:
                sys.stdout.write("\n".join(shown) + "\n\n")
            sys.stdout.flush()
            if once:
                return ExitCode.VALID
            before = now
            time.sleep(every_s)
            # Anew: a search or a sweep has another load, and sometimes another host, at each step.
            still = next((each for each in running(runs) if each.run_id == run.run_id), None)
            if still is None:
                break
            run = still
    except KeyboardInterrupt:
        return ExitCode.VALID
    sys.stdout.write(f"The load of {run.run_id} is over.\n")
    return ExitCode.VALID


def _find(wanted: str | None, runs: Path) -> LiveRun:
    found = running(runs)
    chosen = [run for run in found if wanted is None or run.run_id.startswith(Path(wanted).name)]
    if chosen:
        return chosen[0]
    if found:
        raise NoRun(f"No bench whose name begins with {wanted} runs; there are {', '.join(r.run_id for r in found)}.")
    raise NoRun(
        f"No bench runs under {runs}. Start one in another terminal (make bench FRAMEWORK=...), "
        "or say where its run folder is with --runs."
    )


def _look(run: LiveRun) -> Look:
    texts, silent = [], []
    for role, url in run.metrics.items():
        try:
            texts.append(fetch(url, _FETCH_S).decode())
        except (OSError, ValueError):
            silent.append(role)
    return look(time.monotonic(), texts, silent)
