"""Check `scrapes`: does a Prometheus that looks every five seconds make the load generator late, or the host dearer?

One load on one host of `bare`. Windows of ten seconds take turns: in one of each pair all metrics of host, load
generator and mock are read every five seconds, in the other nothing is. Both see the same processes and machine.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from agentdyno.contract.proof import KEY_BYTES
from agentdyno.contract.run import LoadPlan
from agentdyno.record.cpu_clock import cpu_ns
from agentdyno.record.folder import RunFolder
from agentdyno.rig.backends import start_backend
from agentdyno.rig.building import ensure, say
from agentdyno.rig.environments import adapter_environment
from agentdyno.rig.frameworks import resolve
from agentdyno.rig.load import start_load
from agentdyno.rig.options import Words, read
from agentdyno.rig.processes import Child, Children, fetch, free_port
from agentdyno.rig.servers import start_host
from agentdyno.selfcheck.check import Check, CheckFailed, Findings, Setting
from agentdyno.selfcheck.result import at_most, figure
from agentdyno.selfcheck.slices import on_cores

RATE_RPS = 200
REPEATS = 3
PAIRS = 4
WINDOW_S = 10.0
SCRAPES = 2  # in a window
CPU_RATIO = 1.02
# What two halves of one load without any scrape differ by on a quiet machine; a bucket of the lateness metric is wider.
LATENESS_ADDED_MS = 0.5
HEADERS = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"}
_WARMUP_S = 3.0
_SPARE_S = 15.0
_POLL_S = 0.5
_START_S = 30.0
_GRACE_S = 12.0
_MS = 1e6


Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of the load, on the monotonic clock, and the CPU that the processes took in it."""

    pair: int
    scraped: bool
    begin_ns: int
    end_ns: int
    host_cpu_ns: int
    generator_cpu_ns: int


@dataclass(frozen=True, slots=True)
class Found:
    """One load. *_late_ms: of each arrival in such a window; even, odd: those without scrapes, by pair."""

    windows: Sequence[Window]
    scraped_late_ms: Numbers
    plain_late_ms: Numbers
    even_late_ms: Numbers
    odd_late_ms: Numbers
    scraped_service_ms: Numbers
    plain_service_ms: Numbers

    def ratio(self, of: str) -> float:
        """The median over the pairs of a CPU time with scrapes over that without."""
        taken = {(window.pair, window.scraped): getattr(window, of) for window in self.windows}
        ratios = [taken[pair, True] / taken[pair, False] for pair in {window.pair for window in self.windows}]
        return float(median(ratios))


def measure(setting: Setting) -> Findings:
    """One load for each repeat."""
    ensure(adapter_environment(resolve("bare")[0].path))
    loads = []
    pairs, window_s = max(2, setting.count(PAIRS)), setting.seconds(WINDOW_S)
    for repeat in range(setting.repeats(REPEATS)):
        say(f"scrapes: {pairs} pairs of {window_s:g} s windows, load {repeat + 1}")
        loads.append(_load(setting, pairs, window_s, random.Random(repeat)))
    added = [_p(99, it.scraped_late_ms) - _p(99, it.plain_late_ms) for it in loads]
    return Findings(
        (
            figure("host CPU, scraped / not", "", [it.ratio("host_cpu_ns") for it in loads], at_most(CPU_RATIO)),
            figure("lateness p99, scraped - not", "ms", added, at_most(LATENESS_ADDED_MS)),
            figure("lateness p99, not scraped", "ms", [_p(99, it.plain_late_ms) for it in loads]),
            figure(
                "lateness p99, two halves not scraped (noise)",
                "ms",
                [abs(_p(99, it.even_late_ms) - _p(99, it.odd_late_ms)) for it in loads],
            ),
            figure(
                "lateness p99.9, scraped - not",
                "ms",
                [_p(99.9, it.scraped_late_ms) - _p(99.9, it.plain_late_ms) for it in loads],
            ),
            figure(
                "service time p99, scraped - not",
                "ms",
                [_p(99, it.scraped_service_ms) - _p(99, it.plain_service_ms) for it in loads],
            ),
            figure("generator CPU, scraped / not", "", [it.ratio("generator_cpu_ns") for it in loads]),
        ),
        (
            f"At {RATE_RPS} requests/s, in each load {pairs} windows of {window_s:g} s with a scrape every "
            f"{window_s / SCRAPES:g} s and as many without, in turns. What Prometheus itself takes is not in it.",
        ),
    )


def _p(percent: float, values: Numbers) -> float:
    return float(np.percentile(values, percent))


def _load(setting: Setting, pairs: int, window_s: float, order: random.Random) -> Found:
    """Host, mock and generator, fresh, and the windows of their load."""
    options = read(Words(framework="bare", out=str(setting.folder), admission="off"))
    adapter, variant = resolve("bare")
    folder, cores = RunFolder.create(setting.folder, "scrapes"), setting.cores
    key, port = secrets.token_bytes(KEY_BYTES), free_port()
    plan = LoadPlan(
        rate=float(RATE_RPS),
        warmup_s=_WARMUP_S,
        duration_s=(2 * pairs + 1) * window_s + _SPARE_S,
        cooldown_s=0.0,
        timeout_s=30.0,
        max_in_flight=5000,
        seed=1,
        scenario="chain",
        trace_every=0,
    )
    servers, generators = Children(), Children()
    try:
        backend = start_backend(options, cores.rest, folder.log("backend"), servers)
        host = start_host(
            adapter,
            variant,
            options,
            backend_url=backend.url,
            key=key,
            cores=cores.host,
            log=folder.log("host"),
            children=servers,
        )
        (load,) = start_load(plan, host.url, folder.raw, key, cores.rest, folder.log, generators, metrics_port=port)
        urls = (host.url, f"http://127.0.0.1:{port}", backend.url.removesuffix("/v1"))
        _until_it_sends(urls[1], load)
        with on_cores(cores.rest):
            windows = _windows(pairs, window_s, order, urls, host.child.pid, load)
        if load.exit_code() is not None:
            raise CheckFailed(f"The load was over before its last window: the machine is too busy.{load.log_tail()}")
        if not load.ended_within(window_s + _SPARE_S + _GRACE_S):
            raise CheckFailed(f"The load generator did not end.{load.log_tail()}")
    finally:
        generators.stop(_GRACE_S)
        servers.stop(_GRACE_S)
    ends = folder.worker_ends()
    if len(ends) != 1:
        raise CheckFailed(f"The load generator did not write its end: see {folder.log('generator')}.")
    found = read_windows(folder.requests(), ends[0].t0_monotonic_ns, windows)
    folder.drop_raw()
    return found


def _until_it_sends(url: str, load: Child) -> None:
    """Wait until the load is past its warm-up."""
    end = time.monotonic() + _START_S
    while True:
        if load.exit_code() is not None or time.monotonic() > end:
            raise CheckFailed(f"The load did not begin.{load.log_tail()}")
        try:
            if b'agentdyno_load_stage{stage="measure"} 1.0' in fetch(f"{url}/metrics", 1.0):
                return
        except OSError:
            pass  # not yet listening
        time.sleep(_POLL_S)


def _windows(
    pairs: int, window_s: float, order: random.Random, urls: Sequence[str], host: int, load: Child
) -> list[Window]:
    found = []
    for pair in range(pairs):
        for scraped in order.sample((True, False), 2):
            begin_ns, host_ns, generator_ns = time.monotonic_ns(), cpu_ns(host), cpu_ns(load.pid)
            for scrape in range(SCRAPES):
                _sleep_until(begin_ns, (scrape + 0.1) * window_s / SCRAPES)
                for url in urls if scraped else ():
                    fetch(f"{url}/metrics", _GRACE_S, headers=HEADERS)
            _sleep_until(begin_ns, window_s)
            taken = (cpu_ns(host) - host_ns, cpu_ns(load.pid) - generator_ns)
            found.append(Window(pair, scraped, begin_ns, time.monotonic_ns(), *taken))
    return found


def _sleep_until(begin_ns: int, after_s: float) -> None:
    time.sleep(max(0.0, after_s - (time.monotonic_ns() - begin_ns) / 1e9))


def read_windows(requests: pa.Table, t0_ns: int, windows: Sequence[Window]) -> Found:
    """What became of the arrivals that were due in each window. Raises CheckFailed where one was not answered well."""
    columns = {name: requests[name].to_numpy(zero_copy_only=False) for name in ("intended_ns", "sent_ns", "done_ns")}
    due_ns = columns["intended_ns"] + t0_ns
    inside = np.zeros(len(due_ns), dtype=bool)
    for window in windows:
        inside |= (due_ns >= window.begin_ns) & (due_ns < window.end_ns)
    outcomes = zip(requests["outcome"].to_pylist(), inside, strict=True)
    if any(within and outcome != "ok" for outcome, within in outcomes):
        raise CheckFailed("Not every arrival was answered well; see the records.")
    late_ms = (columns["sent_ns"] - columns["intended_ns"]) / _MS
    service_ms = (columns["done_ns"] - columns["sent_ns"]) / _MS

    def of(values: Numbers, *, scraped: bool, parity: int | None = None) -> Numbers:
        chosen = np.zeros(len(due_ns), dtype=bool)
        for window in windows:
            if window.scraped is scraped and parity in (None, window.pair % 2):
                chosen |= (due_ns >= window.begin_ns) & (due_ns < window.end_ns)
        return values[chosen]

    return Found(
        windows=windows,
        scraped_late_ms=of(late_ms, scraped=True),
        plain_late_ms=of(late_ms, scraped=False),
        even_late_ms=of(late_ms, scraped=False, parity=0),
        odd_late_ms=of(late_ms, scraped=False, parity=1),
        scraped_service_ms=of(service_ms, scraped=True),
        plain_service_ms=of(service_ms, scraped=False),
    )


CHECK = Check("scrapes", "a Prometheus that looks makes nothing late and the host no dearer", measure)
