"""What only the self-check does: a host that watches nothing for a while, and all else is the same."""

import asyncio
import gc

from agentdyno.contract.adapter import LlmEndpoint
from agentdyno.host.app import Host
from agentdyno.host.metrics import HostMetrics


class Idle:
    async def start(self, llm, tools, system_prompt):
        pass

    async def invoke(self, request):
        return ""

    async def close(self):
        pass


def test_probes_and_metrics_of_work_are_switched_off_and_on() -> None:
    async def live() -> list[tuple[int, bool, bool]]:
        llm = LlmEndpoint("http://127.0.0.1:9/v1", "m", "none", 1.0)
        host = Host(Idle(), llm, [], "", framework="it", admission=1, metrics=HostMetrics("it"))
        messages: asyncio.Queue = asyncio.Queue()
        sent: asyncio.Queue = asyncio.Queue()
        registered = len(gc.callbacks)
        serving = asyncio.create_task(host({"type": "lifespan"}, messages.get, sent.put))
        messages.put_nowait({"type": "lifespan.startup"})
        assert (await sent.get())["type"] == "lifespan.startup.complete"
        found = []
        for on in (None, False, True, True):
            if on is not None:
                host.watch(on)
            before = host.probes.report()
            gc.collect()
            await asyncio.sleep(0.12)
            after = host.probes.report()
            assert (len(after.gc) > len(before.gc)) is (len(after.loop) > len(before.loop))
            found.append((len(gc.callbacks) - registered, len(after.gc) > len(before.gc), host.metrics.detailed))
        messages.put_nowait({"type": "lifespan.shutdown"})
        await serving
        assert len(gc.callbacks) == registered
        return found

    on, off = (1, True, True), (0, False, False)
    assert asyncio.run(live()) == [on, off, on, on]
