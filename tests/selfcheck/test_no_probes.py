"""The host option that only the self-check uses: without probes nothing is registered, and all else is the same."""

import asyncio
import gc

import pytest

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


@pytest.mark.parametrize("probing", [True, False])
def test_probes_run_unless_they_are_switched_off(probing: bool) -> None:
    async def live() -> tuple[int, int]:
        llm = LlmEndpoint("http://127.0.0.1:9/v1", "m", "none", 1.0)
        host = Host(Idle(), llm, [], "", framework="it", admission=1, metrics=HostMetrics("it"), probing=probing)
        messages: asyncio.Queue = asyncio.Queue()
        sent: asyncio.Queue = asyncio.Queue()
        registered = len(gc.callbacks)
        serving = asyncio.create_task(host({"type": "lifespan"}, messages.get, sent.put))
        messages.put_nowait({"type": "lifespan.startup"})
        assert (await sent.get())["type"] == "lifespan.startup.complete"
        gc.collect()
        found = len(gc.callbacks) - registered, len(host.probes.report().gc)
        messages.put_nowait({"type": "lifespan.shutdown"})
        await serving
        assert len(gc.callbacks) == registered
        return found

    callbacks, events = asyncio.run(live())
    assert callbacks == int(probing)
    assert (events > 0) is probing
