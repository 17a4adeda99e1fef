"""One run as one HTML file: verdict, figures, phases, latency, memory, the slowest requests with their heap."""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec
import numpy as np

from agentdyno.analysis.curves import latency_curve, memory_curve
from agentdyno.analysis.figures import latency_samples_ms
from agentdyno.analysis.metrics import METRICS
from agentdyno.analysis.run_data import RunData, read_run
from agentdyno.analysis.served import in_words
from agentdyno.analysis.summary import summarise
from agentdyno.contract.phases import Phase
from agentdyno.contract.summary import Summary
from agentdyno.record.checksums import renew_checksums
from agentdyno.record.folder import RunFolder
from agentdyno.record.heap_folder import DIFFERENCE_PAGE, HEAP_FOLDER, read_index
from agentdyno.report.comparison_words import PROGRAM
from agentdyno.report.curves import distribution, memory_over_time
from agentdyno.report.facts import backend_facts, machine_facts, moment
from agentdyno.report.page import page
from agentdyno.report.plots import BarPlot, LinePlot, Series, bar_plot, plot_data
from agentdyno.report.waterfall import waterfalls

REPORT_FILE = "report.html"
_SLOWEST = 5


def write_run_report(path: Path) -> None:
    """Recompute the run's figures from its raw files and write report.html into its folder.

    Raises DataError when its files cannot be read, HeapFolderError, and OSError.
    """
    RunFolder(path).write_bytes(REPORT_FILE, run_page(read_run(path)).encode("utf-8", errors="replace"))
    renew_checksums(path, [REPORT_FILE])


def run_page(data: RunData) -> str:
    """The whole page."""
    summary, manifest = summarise(data), data.manifest
    latency, memory = _latency_plot(data), _memory_plot(data)
    version = f" {summary.framework.version}" if summary.framework.version else ""
    return page(
        "run.html",
        summary=summary,
        manifest=manifest,
        title=f"{summary.framework.name}{version}",
        when=moment(manifest.started_utc),
        verdict=_verdict(summary),
        metrics=[(metric, metric.value(summary)) for metric in METRICS],
        phase_plot=_phase_plot(summary),
        phases=[phase.value for phase in Phase],
        phase_times=[(name, time) for name, time in summary.phases_ms.items() if time is not None],
        within_backend=in_words(summary.backend_ms),
        latency_plot=latency,
        memory_plot=memory,
        slowest=waterfalls(data, _SLOWEST),
        heap=_heap_pages(data.path),
        facts=[*machine_facts(msgspec.to_builtins(manifest.machine), manifest.cores), *backend_facts(manifest.backend)],
        command=f"{PROGRAM} {shlex.join(manifest.command)}",
        plot_data=plot_data([plot for plot in (latency, memory) if plot is not None]),
    )


def _verdict(summary: Summary) -> list[str]:
    """What came of it, in sentences."""
    load = summary.load
    if load is None or not load.arrivals:
        said = "Nothing was measured: there is no arrival on record."
    else:
        said = (
            f"{load.ok:,} of {load.arrivals:,} arrivals at {load.requested_rate:g} a second were answered and verified."
        )
    overloaded = " It was overloaded: latency is that of those that were let in." if summary.overloaded else ""
    valid = "The run is valid." if summary.verdict.valid else "The run is invalid: its figures may not be compared."
    return [said, valid + overloaded]


def _phase_plot(summary: Summary) -> BarPlot | None:
    times = [
        (name, time.mean) for name, time in summary.phases_ms.items() if time is not None and time.mean is not None
    ]
    if not times:
        return None
    return bar_plot("Mean of the traced requests", [(summary.framework.name, times, None)])


def _latency_plot(data: RunData) -> LinePlot | None:
    if data.requests is None:
        return None
    kinds = zip(("intended start", "actual send"), latency_samples_ms(data.requests), strict=True)
    series = [Series(name, style, latency_curve(np.sort(samples))) for style, (name, samples) in enumerate(kinds)]
    return distribution("latency", "Verified answers of the measured stage", series, "", "latency, ms")


def _memory_plot(data: RunData) -> LinePlot | None:
    series = Series(data.manifest.framework.name, 0, memory_curve(data))
    return memory_over_time("memory", "Warm-up, measurement, cool-down", [series], "")


def _heap_pages(run: Path) -> list[tuple[str, str]]:
    """Path from the run's folder, and a name, of the flame graphs that are there."""
    index = read_index(run)
    if index is None:
        return []
    pages = [(one.page, f"{one.seconds:g} s") for one in index.snapshots] + [(DIFFERENCE_PAGE, "growth")]
    return [(f"{HEAP_FOLDER}/{name}", words) for name, words in pages if (run / HEAP_FOLDER / name).is_file()]
