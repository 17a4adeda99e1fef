"""`agentdyno profile`: the same load as a bench's, in a run of its own with the heap profiler in the host."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
from rich.console import Console

from agentdyno.analysis.heap import Attribution, HeapTop, top
from agentdyno.analysis.verdict import is_overloaded
from agentdyno.contract.adapter import AdapterFolder, Variant
from agentdyno.contract.pprof import difference
from agentdyno.contract.quantities import parse_duration_s
from agentdyno.contract.run import ExitCode
from agentdyno.contract.summary import Summary
from agentdyno.record.checksums import write_checksums
from agentdyno.record.folder import RunFolder
from agentdyno.record.heap_folder import DIFFERENCE_PAGE, HEAP_FOLDER, HeapIndex, read_index, read_profile
from agentdyno.report.flamegraph import difference_page, snapshot_page
from agentdyno.report.heap_table import print_heap
from agentdyno.report.terminal import print_summary
from agentdyno.rig.environments.building import ensure, say
from agentdyno.rig.environments.environment import Environment, adapter_environment, normalised, profiler_environment
from agentdyno.rig.environments.frameworks import resolve
from agentdyno.rig.environments.locks import listed_requirements
from agentdyno.rig.native_spans import refuse_native_spans
from agentdyno.rig.option_values import OptionError
from agentdyno.rig.options import BenchOptions, Words, read
from agentdyno.rig.run import Run
from agentdyno.rig.snapshots import HeapProfiling
from agentdyno.rig.task import begun
from agentdyno.rig.vllm_cpu import refuse_vllm_cpu

_CLIENT_DISTRIBUTIONS = frozenset({"openai", "aiohttp", "httpx"})
# An import name at the beginning of a line of a distribution's RECORD.
TOP_LEVEL = re.compile(r"^(?!\.\.|[^/,]+\.(?:dist-info|data)/)([^/,]+?)(?:\.py)?(?:/|,)", re.MULTILINE)


class Slowdown(msgspec.Struct, frozen=True, kw_only=True):
    """What profiling costs: profiled over plain, of the same workload. None where either was not measured, and for the
    ratios where the framework did not keep up in both: the CPU of what got no answer is in the sum all the same.
    """

    plain_run: str
    both_valid: bool
    both_kept_up: bool
    cpu_ms_per_request: tuple[float | None, float | None]
    cpu_ratio: float | None
    service_p50_ms: tuple[float | None, float | None]
    service_p50_ratio: float | None

    def sentence(self) -> str:
        """The figures for people."""
        if not self.both_kept_up:
            return (
                "What profiling costs was not measured: in one of the two runs, or both, the framework did not keep up "
                "with the load. Ask for less: RATE=."
            )
        ratios = (self.cpu_ratio, self.service_p50_ratio)
        cpu, p50 = ("not measured" if ratio is None else f"{ratio:.2f} x" for ratio in ratios)
        doubt = "" if self.both_valid else " One of the two runs is invalid, so take these with care."
        return f"Profiling costs: CPU per request {cpu}, service time p50 {p50}, against a plain run.{doubt}"


def profile(words: Words, interval: str, plain: str) -> ExitCode:
    """Run it and print what holds the heap; the run folder's path is the last line on stdout.

    interval: between snapshots. plain: how long the same load is first put on a host without the profiler, to say
    what profiling costs; `off`: not at all. Raises OptionError, AdapterError, SetupError or FolderError.
    """
    options = read(words)
    refuse_native_spans(options, "profile")
    refuse_vllm_cpu(options, "profile")
    interval_s, plain_s = times(interval, plain, options)
    adapter, variant = resolve(options.framework)
    if variant.command is not None:
        raise OptionError(f"{variant.name} is a program of its own: the heap profiler is for Python adapters.")
    environment = adapter_environment(adapter.path)
    ensure(environment)
    ensure(profiler_environment())
    packages = framework_packages(environment, variant)
    before: Summary | None = None
    if plain_s is not None:
        before, code, _ = _run(plain_first(options, plain_s), adapter, variant, None)
        if code is ExitCode.INTERRUPTED:
            return code
    heap = HeapProfiling(profiler_environment(), interval_s, packages)
    summary, code, folder = _run(options, adapter, variant, heap)
    show(folder, before, summary, packages)
    return code


def times(interval: str, plain: str, options: BenchOptions) -> tuple[float, float | None]:
    """Seconds between snapshots, and of the plain run before; None: there is to be none. Raises OptionError."""
    plain_s = None if plain == "off" else min(_seconds("PLAIN", plain), options.plan.duration_s)
    return _seconds("INTERVAL", interval), plain_s


def plain_first(options: BenchOptions, plain_s: float) -> BenchOptions:
    """The same load without the profiler, for so long; says so."""
    say(f"{options.framework}: first {plain_s:g} s without the profiler, to say what it costs")
    return replace(options, plan=msgspec.structs.replace(options.plan, duration_s=plain_s))


def show(folder: RunFolder, before: Summary | None, summary: Summary, packages: tuple[str, ...]) -> None:
    """Print what the run says, write what its snapshots say; the run folder's path is the last line on stdout.

    before: the plain run's summary; None: there was none.
    """
    print_summary(summary, _console())
    slowdown = None if before is None else compare_cost(before, summary)
    table = write_reports(folder.path, summary.framework.name, packages)
    if slowdown is not None and table is not None:
        folder.write_json(f"{HEAP_FOLDER}/slowdown.json", slowdown)
        write_checksums(folder.path)
    print_heap(table, None if slowdown is None else slowdown.sentence(), _console())
    sys.stdout.write(f"{folder.path}\n")


def write_reports(run: Path, framework: str, packages: tuple[str, ...]) -> HeapTop | None:
    """`top10.json` and a flame-graph page for each snapshot and for the growth; None where there is no snapshot."""
    index = read_index(run)
    if index is None or not index.snapshots:
        return None
    attribution = Attribution(packages)
    folder = RunFolder(run)
    for snapshot in index.snapshots:
        page = snapshot_page(read_profile(run, snapshot), attribution, framework, _place(index, snapshot.seconds))
        folder.write_bytes(f"{HEAP_FOLDER}/{snapshot.page}", page.encode())
    first, last = (read_profile(run, index.snapshots[at]) for at in (0, -1))
    page = difference_page(difference(last, first), attribution, framework, index.snapshots[-1].seconds)
    folder.write_bytes(f"{HEAP_FOLDER}/{DIFFERENCE_PAGE}", page.encode())
    table = top(first, last, attribution)
    folder.write_json(f"{HEAP_FOLDER}/top10.json", table)
    write_checksums(run)  # again: the pages and the table came after the run's own end
    return table


def framework_packages(environment: Environment, variant: Variant) -> tuple[str, ...]:
    """Import names of the distributions that requirements.in names, and of those that share their first word:
    langchain-core is LangChain as much as langchain is.
    """
    names: dict[str, list[str]] = {}
    for metadata in sorted(environment.site_packages.glob("*.dist-info")):
        if (metadata / "RECORD").is_file():
            found = TOP_LEVEL.findall((metadata / "RECORD").read_text(encoding="utf-8"))
            names[metadata.name.partition("-")[0]] = found
    return packages_among(names, environment, variant)


def packages_among(names: Mapping[str, Sequence[str]], environment: Environment, variant: Variant) -> tuple[str, ...]:
    """The same of an environment anywhere. names: import names by distribution. environment: whose requirements.in."""
    wanted = [re.split(r"[^A-Za-z0-9._-]", line)[0] for line in listed_requirements(environment.lock.parent)]
    wanted += [variant.distribution] if variant.distribution else []
    families = {normalised(name).partition("-")[0] for name in wanted} - _CLIENT_DISTRIBUTIONS
    own = (found for name, found in names.items() if normalised(name).partition("-")[0] in families)
    return tuple(sorted({name for found in own for name in found}))


def compare_cost(plain: Summary, profiled: Summary) -> Slowdown:
    """Profiled over plain."""
    cpu = (plain.cpu_ms_per_request, profiled.cpu_ms_per_request)
    p50 = (_service_p50(plain), _service_p50(profiled))
    kept_up = not any(summary.load is not None and is_overloaded(summary.load) for summary in (plain, profiled))
    return Slowdown(
        plain_run=plain.run_id,
        both_valid=plain.verdict.valid and profiled.verdict.valid,
        both_kept_up=kept_up,
        cpu_ms_per_request=cpu,
        cpu_ratio=_ratio(*cpu) if kept_up else None,
        service_p50_ms=p50,
        service_p50_ratio=_ratio(*p50) if kept_up else None,
    )


def _run(
    options: BenchOptions, adapter: AdapterFolder, variant: Variant, heap: HeapProfiling | None
) -> tuple[Summary, ExitCode, RunFolder]:
    with begun(options, adapter, variant) as task:
        summary, code = Run(task, heap).run()
    return summary, code, task.folder


def _service_p50(summary: Summary) -> float | None:
    return None if summary.latency_ms is None else summary.latency_ms.service.p50


def _ratio(plain: float | None, profiled: float | None) -> float | None:
    return profiled / plain if plain and profiled is not None else None


def _place(index: HeapIndex, seconds: float) -> str:
    return f"{seconds:.0f} s of {index.snapshots[-1].seconds:.0f} s"


def _seconds(name: str, text: str) -> float:
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise OptionError(f"{name}: {error}") from error


def _console() -> Console:
    return Console(file=sys.stdout, soft_wrap=not sys.stdout.isatty())
