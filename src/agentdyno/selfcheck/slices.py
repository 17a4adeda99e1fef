"""CPU per request of several hosts that live at the same time, loaded in turn, a slice of half a second each.

Two runs one after the other differ by more than a probe costs: the machine's clock rate and its neighbours change.
Slices that take turns see the same machine. Two processes of the very same program also differ, by several percent:
what costs less than that is switched on and off within one process, and every process is a new one in each round.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import aiohttp
import msgspec

from agentdyno.contract.invoke import INVOKE_PATH
from agentdyno.contract.proof import Stage, order_id
from agentdyno.contract.run import Outcome
from agentdyno.contract.scenario import SCENARIOS
from agentdyno.load.verify import judge
from agentdyno.record.cpu_clock import cpu_ns
from agentdyno.selfcheck.check import CheckFailed

RATE_RPS = 200
_SETTLE_S = 0.35  # after the last answer: the batch of who sends spans goes out within a quarter of a second
_SWITCH_S = 0.02
_SCENARIO = SCENARIOS["chain"]
_HEADERS = {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class Arm:
    """One host, or one way in which a host is driven. traced: its requests ask for spans. settles: what it does within
    a moment after its last answer belongs to the slice. switch: the signal that it is sent before.
    """

    name: str
    url: str
    pid: int
    key: bytes
    traced: bool = False
    settles: bool = False
    switch: signal.Signals | None = None


class Slices:
    """Loads arms in turn; `take` may be called again and again, every request is a new order."""

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)
        self._index = 0

    def take(self, arms: Sequence[Arm], cycles: int, requests: int) -> dict[str, list[float]]:
        """Every arm `cycles` times for `requests` requests, in a new random order each cycle.

        Returns by arm the CPU in us per request of each cycle. Raises CheckFailed for an answer that is not right.
        """
        return asyncio.run(self._take(arms, cycles, requests))

    async def _take(self, arms: Sequence[Arm], cycles: int, requests: int) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {arm.name: [] for arm in arms}
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60)
        async with aiohttp.ClientSession(connector=connector, headers=_HEADERS) as session:
            for arm in arms:
                await self._slice(session, arm, requests)  # warm-up
            for _ in range(cycles):
                for arm in self._random.sample(arms, len(arms)):
                    found[arm.name].append(await self._slice(session, arm, requests))
        return found

    async def _slice(self, session: aiohttp.ClientSession, arm: Arm, requests: int) -> float:
        loop = asyncio.get_running_loop()
        if arm.switch is not None:
            os.kill(arm.pid, arm.switch)
            await asyncio.sleep(_SWITCH_S)
        before_ns = cpu_ns(arm.pid)
        start_s = loop.time()
        tasks = []
        for number in range(requests):
            await asyncio.sleep(start_s + number / RATE_RPS - loop.time())
            tasks.append(loop.create_task(self._request(session, arm, self._index)))
            self._index += 1
        await asyncio.gather(*tasks)
        if arm.settles:  # elsewhere this would only add an idle host's timers to the requests
            await asyncio.sleep(_SETTLE_S)
        return (cpu_ns(arm.pid) - before_ns) / requests / 1000

    async def _request(self, session: aiohttp.ClientSession, arm: Arm, index: int) -> None:
        body = msgspec.json.encode(_SCENARIO.request(1, Stage.MEASURE, index, 10_000))
        flag = "01" if arm.traced else "00"
        parent = {"traceparent": f"00-{index + 1:032x}-{index + 1:016x}-{flag}"}
        async with session.post(arm.url + INVOKE_PATH, data=body, headers=parent) as response:
            judged = judge(
                response.status, await response.read(), order_id(1, Stage.MEASURE, index), arm.key, _SCENARIO
            )
        if judged.outcome is not Outcome.OK:
            raise CheckFailed(f"{arm.name} answered a request wrongly: {judged.reason}.")


@contextmanager
def on_cores(cores: frozenset[int] | None) -> Iterator[None]:
    """This process on those cores, then back where it was."""
    if cores is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
