"""Check `instruments`: what the rig's own instruments inside the measured process cost the control.

Four hosts of `bare` live side by side and are loaded in turn: one plain (probes and all metrics on, not traced), one
just like it (what differs between these two is noise), one traced in full, and one without probes, phase histograms
and counts of work. What a scrape takes is measured by itself and added to the plain one, a scrape every five seconds.
"""

from __future__ import annotations

import secrets
import time
import timeit
from collections.abc import Mapping, Sequence
from statistics import median

from agentdyno.contract.proof import KEY_BYTES
from agentdyno.contract.trace import LlmCall
from agentdyno.host.metrics import HostMetrics
from agentdyno.host.trace import RequestTrace, ToolRun
from agentdyno.record.cpu_clock import cpu_ns
from agentdyno.record.folder import RunFolder
from agentdyno.rig.backends import start_backend
from agentdyno.rig.building import ensure, say
from agentdyno.rig.environments import adapter_environment
from agentdyno.rig.frameworks import resolve
from agentdyno.rig.options import BenchOptions, Words, read
from agentdyno.rig.processes import Children, fetch
from agentdyno.rig.servers import start_host, start_recorder
from agentdyno.selfcheck.check import Check, Findings, Setting
from agentdyno.selfcheck.result import at_most, figure
from agentdyno.selfcheck.slices import RATE_RPS, Arm, Slices, on_cores

PLAIN, AGAIN, TRACED, UNPROBED = "plain", "plain again", "traced", "without probes"
ROUNDS = 8
CYCLES = 6
TRACING_RATIO = 1.10
PROBES_RATIO = 1.02
SCRAPE_EVERY_S = 5.0
_SCRAPES = 50
_SCRAPE = "scrape"
_SCRAPE_HEADERS = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"}
_GRACE_S = 12.0


def measure(setting: Setting) -> Findings:
    """Rounds of fresh processes; in each the median over cycles of the paired ratios."""
    # Only CPU is asked for: a moment in which the machine is elsewhere must not make rejections of it.
    options = read(Words(framework="bare", out=str(setting.folder), admission="off"))
    ensure(adapter_environment(resolve("bare")[0].path))
    slices = Slices()
    rounds = []
    for number in range(setting.repeats(ROUNDS)):
        say(f"instruments: round {number + 1}")
        rounds.append(_round(setting, options, slices))
    return Findings(
        (
            figure("traced / not traced", "", _ratios(rounds, TRACED, PLAIN), at_most(TRACING_RATIO)),
            figure("probes, metrics, scrapes / none", "", _watched(rounds), at_most(PROBES_RATIO)),
            figure("the same twice (noise)", "", _ratios(rounds, AGAIN, PLAIN)),
            figure("bare, not traced", "us CPU a request", [median(it[PLAIN]) for it in rounds]),
            figure("tracing", "us CPU a request", _differences(rounds, TRACED, PLAIN)),
            figure("probes, metrics", "us CPU a request", _differences(rounds, PLAIN, UNPROBED)),
            figure("a scrape", "us CPU", [it[_SCRAPE][0] for it in rounds]),
            figure("metrics", "us CPU a request", [_metrics_us() for _ in range(setting.repeats(ROUNDS))]),
        ),
        (
            f"At {RATE_RPS} requests/s, {setting.count(CYCLES)} slices of one second for each host and round. The "
            "figure of the metrics is of their calls alone, in a loop. A scrape every "
            f"{SCRAPE_EVERY_S:g} s is in the ratio of probes and metrics.",
        ),
    )


def _round(setting: Setting, options: BenchOptions, slices: Slices) -> Mapping[str, list[float]]:
    """The four hosts, fresh, and their slices: by arm the CPU in us per request."""
    adapter, variant = resolve("bare")
    folder = RunFolder.create(setting.folder, "slices")
    key = secrets.token_bytes(KEY_BYTES)
    servers, recorders = Children(), Children()
    cores = setting.cores
    try:
        recorder = start_recorder(folder, {}, cores.rest, recorders)
        backend = start_backend(options, cores.rest, folder.log("backend"), servers, spans=recorder.address)
        arms = []
        for name, traced, probes in (
            (PLAIN, False, True),
            (AGAIN, False, True),
            (TRACED, True, True),
            (UNPROBED, False, False),
        ):
            host = start_host(
                adapter,
                variant,
                options,
                backend_url=backend.url,
                key=key,
                cores=cores.host,
                log=folder.log(f"host-{name.replace(' ', '-')}"),
                children=servers,
                spans=recorder.address if traced else None,
                probes=probes,
            )
            arms.append(Arm(name, host.url, host.child.pid, key, traced))
        with on_cores(cores.rest):
            found = slices.take(arms, setting.count(CYCLES), RATE_RPS)
            return {**found, _SCRAPE: [_scrape_us(arms[0])]}
    finally:
        servers.stop(_GRACE_S)
        recorders.stop(_GRACE_S)


def _scrape_us(arm: Arm) -> float:
    """CPU that the host takes for one scrape, as a Prometheus asks for it."""
    before_ns = cpu_ns(arm.pid)
    for _ in range(_SCRAPES):
        fetch(arm.url + "/metrics", _GRACE_S, headers=_SCRAPE_HEADERS)
    return (cpu_ns(arm.pid) - before_ns) / _SCRAPES / 1000


def _watched(rounds: Sequence[Mapping[str, list[float]]]) -> list[float]:
    """In each round the median of plain over unprobed, with a scrape every so often added to the plain."""
    requests = SCRAPE_EVERY_S * RATE_RPS
    return [
        median((a + it[_SCRAPE][0] / requests) / b for a, b in zip(it[PLAIN], it[UNPROBED], strict=True))
        for it in rounds
    ]


def _ratios(rounds: Sequence[Mapping[str, list[float]]], above: str, below: str) -> list[float]:
    """In each round the median of the ratios of slices of the same cycle."""
    return [median(a / b for a, b in zip(it[above], it[below], strict=True)) for it in rounds]


def _differences(rounds: Sequence[Mapping[str, list[float]]], minuend: str, subtrahend: str) -> list[float]:
    return [median(a - b for a, b in zip(it[minuend], it[subtrahend], strict=True)) for it in rounds]


def _metrics_us() -> float:
    """What the host's Prometheus metrics cost for one request of the chain: counts, durations, phases, work."""
    metrics = HostMetrics("bare")
    trace = RequestTrace(1, None, True, 0, end_ns=5_000_000)
    for turn in range(4):
        begin_ns = (turn + 1) * 1_000_000
        trace.llm_calls.append(LlmCall(1, begin_ns, status=200, end_ns=begin_ns + 500_000, wants_tools=turn < 3))
    for turn in range(3):
        begin_ns = (turn + 1) * 1_000_000 + 600_000
        trace.tools.append(ToolRun(1, "tool", {}, begin_ns, begin_ns + 100_000))

    def one_request() -> None:
        metrics.in_flight.inc()
        metrics.in_flight.dec()
        metrics.llm_ok.inc(4)
        metrics.llm_failed.inc(0)
        metrics.count("ok", 5_000_000, 1)
        metrics.count_work(trace)

    return timeit.timeit(one_request, timer=time.process_time, number=20_000) / 20_000 * 1e6


CHECK = Check("instruments", "what tracing, probes and metrics cost in the measured process", measure)
