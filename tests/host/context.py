"""Running something as the host does: with its request in the context."""

import asyncio
import contextvars
from collections.abc import Coroutine
from typing import Any

from agentdyno.host.trace import CURRENT, RequestTrace


async def in_request(trace: RequestTrace, work: Coroutine[Any, Any, Any]) -> Any:
    context = contextvars.copy_context()
    context.run(CURRENT.set, trace)
    return await asyncio.get_running_loop().create_task(work, context=context)
