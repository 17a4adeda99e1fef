"""Check `instruments`: what the rig's own instruments inside the measured process cost the control.

Two hosts of `bare` live side by side and are loaded in turn. One is not traced; in two slices of a cycle its probes,
phase histograms and counts of work are on, in two they are off: on over off is what they cost, the first of each over
the second of each is noise, found from just as many slices. What a scrape takes is measured by itself and added to the
slices with all on, a scrape every five seconds. The other host sends spans: in one slice of a cycle all of its requests
are traced, in another none.
"""

from __future__ import annotations

import os
import secrets
import signal
import time
import timeit
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, median

from agentdyno.contract.proof import KEY_BYTES
from agentdyno.contract.trace import LlmCall
from agentdyno.host.metrics import HostMetrics
from agentdyno.host.trace import RequestTrace, ToolRun
from agentdyno.record.cpu_clock import cpu_ns
from agentdyno.record.folder import RunFolder
from agentdyno.rig.backends import start_backend
from agentdyno.rig.environments.building import ensure, say
from agentdyno.rig.environments.environment import adapter_environment
from agentdyno.rig.environments.frameworks import resolve
from agentdyno.rig.options import BenchOptions, Words, read
from agentdyno.rig.processes import Children, fetch
from agentdyno.rig.servers import Host, start_host, start_recorder
from agentdyno.selfcheck.check import Check, Findings, Setting
from agentdyno.selfcheck.result import at_most, figure
from agentdyno.selfcheck.slices import RATE_RPS, Arm, Slices, on_cores

ON, ON_AGAIN, OFF, OFF_AGAIN = "on", "on again", "off", "off again"
TRACED, UNTRACED = "traced", "not traced"
ROUNDS = 8
CYCLES = 16
SLICE_REQUESTS = RATE_RPS // 2
TRACING_RATIO = 1.10
PROBES_RATIO = 1.02
SCRAPE_EVERY_S = 5.0
_SCRAPES = 50
_SCRAPE = "scrape"
_SWITCHES = {ON: signal.SIGUSR1, ON_AGAIN: signal.SIGUSR1, OFF: signal.SIGUSR2, OFF_AGAIN: signal.SIGUSR2}
_Round = Mapping[str, list[float]]  # by arm the CPU in us per request of each cycle
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
            figure("traced / not traced", "", _ratios(rounds, (TRACED,), (UNTRACED,)), at_most(TRACING_RATIO)),
            figure("probes, metrics, scrapes / none", "", _watched(rounds), at_most(PROBES_RATIO)),
            figure("the same twice (noise)", "", _ratios(rounds, (ON, OFF), (ON_AGAIN, OFF_AGAIN))),
            figure("bare, not traced", "us CPU a request", [median(it[ON]) for it in rounds]),
            figure("tracing", "us CPU a request", _differences(rounds, (TRACED,), (UNTRACED,))),
            figure("probes, metrics", "us CPU a request", _differences(rounds, (ON, ON_AGAIN), (OFF, OFF_AGAIN))),
            figure("a scrape", "us CPU", [it[_SCRAPE][0] for it in rounds]),
            figure("metrics", "us CPU a request", [_metrics_us() for _ in range(setting.repeats(ROUNDS))]),
        ),
        (
            f"At {RATE_RPS} requests/s, {setting.count(CYCLES)} cycles of slices of half a second a round. Probes and "
            "metrics are switched on and off within one process. The figure of the metrics is of their calls "
            f"alone, in a loop. A scrape every {SCRAPE_EVERY_S:g} s is in the ratio of probes and metrics.",
        ),
    )


def _round(setting: Setting, options: BenchOptions, slices: Slices) -> _Round:
    """The two hosts, fresh, and their slices: by arm the CPU in us per request; under `scrape` what one takes."""
    adapter, variant = resolve("bare")
    folder = RunFolder.create(setting.folder, "slices")
    key = secrets.token_bytes(KEY_BYTES)
    servers, recorders = Children(), Children()
    cores = setting.cores
    try:
        recorder = start_recorder(folder, {}, cores.rest, recorders)
        backend = start_backend(options, cores.rest, folder.log("backend"), servers, spans=recorder.address)

        def host(name: str, spans: str | None) -> Host:
            return start_host(
                adapter,
                variant,
                options,
                backend_url=backend.url,
                key=key,
                cores=cores.host,
                log=folder.log(f"host-{name}"),
                children=servers,
                spans=spans,
                switchable=True,
            )

        plain, traced = host("plain", None), host(TRACED, recorder.address)
        arms = [Arm(name, plain.url, plain.child.pid, key, switch=switch) for name, switch in _SWITCHES.items()]
        for name in (TRACED, UNTRACED):  # the same wait after both, which charges them with the same idle timers
            arms.append(Arm(name, traced.url, traced.child.pid, key, traced=name == TRACED, settles=True))
        with on_cores(cores.rest):
            found = slices.take(arms, setting.count(CYCLES), SLICE_REQUESTS)
            os.kill(plain.child.pid, _SWITCHES[ON])
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


def _watched(rounds: Sequence[_Round]) -> list[float]:
    """In each round the median of on over off, with a scrape every so often added to what is on."""
    return [
        median(
            (a + it[_SCRAPE][0] / (SCRAPE_EVERY_S * RATE_RPS)) / b
            for a, b in _pairs(it, (ON, ON_AGAIN), (OFF, OFF_AGAIN))
        )
        for it in rounds
    ]


def _ratios(rounds: Sequence[_Round], above: Sequence[str], below: Sequence[str]) -> list[float]:
    """In each round the median of the ratios of one cycle's slices."""
    return [median(a / b for a, b in _pairs(it, above, below)) for it in rounds]


def _differences(rounds: Sequence[_Round], minuend: Sequence[str], subtrahend: Sequence[str]) -> list[float]:
    return [median(a - b for a, b in _pairs(it, minuend, subtrahend)) for it in rounds]


def _pairs(round_: _Round, one: Sequence[str], other: Sequence[str]) -> Iterator[tuple[float, float]]:
    """In each cycle the means of these arms and of those."""
    for cycle in range(len(round_[ON])):
        yield fmean(round_[arm][cycle] for arm in one), fmean(round_[arm][cycle] for arm in other)


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
        metrics.llm_ok.inc(4)
        metrics.count("ok", 5_000_000, 1)
        metrics.count_work(trace)

    return timeit.timeit(one_request, timer=time.process_time, number=20_000) / 20_000 * 1e6


CHECK = Check("instruments", "what tracing, probes and metrics cost in the measured process", measure)
