"""Check `scrapes`: does a Prometheus that looks every five seconds make the load generator late, or the host dearer?

One load on one host of `bare`. Windows of five seconds take turns: in one of each pair all metrics of host, load
generator and mock are read once, in the other nothing is. Both see the same processes and machine.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import numpy as np
import pyarrow as pa

from agentdyno.contract.proof import KEY_BYTES
from agentdyno.contract.run import LoadPlan, Outcome
from agentdyno.record.cpu_clock import cpu_ns
from agentdyno.record.folder import RunFolder
from agentdyno.rig.backends import start_backend
from agentdyno.rig.environments.building import ensure, say
from agentdyno.rig.environments.environment import adapter_environment
from agentdyno.rig.environments.frameworks import resolve
from agentdyno.rig.load import start_load
from agentdyno.rig.options import Words, read
from agentdyno.rig.processes import Child, Children, fetch, free_port
from agentdyno.rig.servers import start_host
from agentdyno.selfcheck.check import Check, CheckFailed, Findings, Setting
from agentdyno.selfcheck.result import at_most, figure
from agentdyno.selfcheck.slices import on_cores

RATE_RPS = 200
REPEATS = 3
PAIRS = 12
WINDOW_S = 5.0
SCRAPES = 1  # in a window
CPU_RATIO = 1.02
# Far below the 10 ms at which an arrival counts as late, and what windows without a scrape differ by anyway.
LATENESS_ADDED_MS = 0.5
HEADERS = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"}
_WARMUP_S = 3.0
_SPARE_S = 15.0
_POLL_S = 0.5
_START_S = 30.0
_GRACE_S = 12.0
_NS_PER_MS = 1e6


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
class Seen:
    """What became of a window: lateness and service time p99 of the arrivals that were due in it."""

    window: Window
    late_p99_ms: float
    service_p99_ms: float


Value = Callable[[Seen], float]


def measure(setting: Setting) -> Findings:
    """One load for each repeat; in each the median over the pairs."""
    ensure(adapter_environment(resolve("bare")[0].path))
    loads = []
    pairs, window_s = max(2, setting.count(PAIRS)), setting.seconds(WINDOW_S)
    for repeat in range(setting.repeats(REPEATS)):
        say(f"scrapes: {pairs} pairs of {window_s:g} s windows, load {repeat + 1}")
        loads.append(_load(setting, pairs, window_s, random.Random(repeat)))
    return Findings(
        (
            figure("host CPU, scraped / not", "", [ratio(it, _host) for it in loads], at_most(CPU_RATIO)),
            figure("lateness p99, scraped - not", "ms", [added(it, _late) for it in loads], at_most(LATENESS_ADDED_MS)),
            figure("lateness p99, not scraped", "ms", [median(map(_late, plain(it))) for it in loads]),
            figure("lateness p99, not scraped twice (noise)", "ms", [noise(it, _late) for it in loads]),
            figure("service time p99, scraped - not", "ms", [added(it, _service) for it in loads]),
            figure("generator CPU, scraped / not", "", [ratio(it, _generator) for it in loads]),
        ),
        (
            f"At {RATE_RPS} requests/s, in each load {pairs} windows of {window_s:g} s with a scrape every "
            f"{window_s / SCRAPES:g} s and as many without, in turns. What Prometheus itself takes is not in it.",
        ),
    )


def plain(seen: Sequence[Seen]) -> list[Seen]:
    """The windows without a scrape, by pair."""
    return sorted((it for it in seen if not it.window.scraped), key=lambda it: it.window.pair)


def scraped(seen: Sequence[Seen]) -> list[Seen]:
    """Those with scrapes, by pair."""
    return sorted((it for it in seen if it.window.scraped), key=lambda it: it.window.pair)


def ratio(seen: Sequence[Seen], of: Value) -> float:
    """The median over the pairs of a value with scrapes over that without."""
    return median(of(a) / of(b) for a, b in zip(scraped(seen), plain(seen), strict=True))


def added(seen: Sequence[Seen], of: Value) -> float:
    """The median over the pairs of a value with scrapes less that without."""
    return median(of(a) - of(b) for a, b in zip(scraped(seen), plain(seen), strict=True))


def noise(seen: Sequence[Seen], of: Value) -> float:
    """The median difference of neighbours without a scrape, whichever way: what `added` is to be seen beside."""
    return median(abs(of(a) - of(b)) for a, b in pairwise(plain(seen)))


def _host(seen: Seen) -> float:
    return seen.window.host_cpu_ns


def _generator(seen: Seen) -> float:
    return seen.window.generator_cpu_ns


def _late(seen: Seen) -> float:
    return seen.late_p99_ms


def _service(seen: Seen) -> float:
    return seen.service_p99_ms


def _load(setting: Setting, pairs: int, window_s: float, order: random.Random) -> list[Seen]:
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
                    _scrape(url)
            _sleep_until(begin_ns, window_s)
            taken = (cpu_ns(host) - host_ns, cpu_ns(load.pid) - generator_ns)
            found.append(Window(pair, scraped, begin_ns, time.monotonic_ns(), *taken))
    return found


def _scrape(url: str) -> None:
    try:
        fetch(f"{url}/metrics", _GRACE_S, headers=HEADERS)
    except OSError as error:
        raise CheckFailed(f"{url}/metrics did not answer: {error}. The machine is too busy.") from error


def _sleep_until(begin_ns: int, after_s: float) -> None:
    time.sleep(max(0.0, after_s - (time.monotonic_ns() - begin_ns) / 1e9))


def read_windows(requests: pa.Table, t0_ns: int, windows: Sequence[Window]) -> list[Seen]:
    """What became of the arrivals that were due in each window. Raises CheckFailed where one was not answered well."""
    due_ns, sent_ns, done_ns = (
        requests[name].to_numpy(zero_copy_only=False) for name in ("intended_ns", "sent_ns", "done_ns")
    )
    good = np.array([outcome == Outcome.OK.value for outcome in requests["outcome"].to_pylist()])
    found = []
    for window in windows:
        inside = (due_ns + t0_ns >= window.begin_ns) & (due_ns + t0_ns < window.end_ns)
        if not inside.any() or not good[inside].all():
            raise CheckFailed("Not every arrival of a window was answered well: the machine is too busy.")
        late_ns, service_ns = (sent_ns - due_ns)[inside], (done_ns - sent_ns)[inside]
        p99_ms = [float(np.percentile(values, 99)) / _NS_PER_MS for values in (late_ns, service_ns)]
        found.append(Seen(window, *p99_ms))
    return found


CHECK = Check("scrapes", "a Prometheus that looks makes nothing late and the host no dearer", measure)
