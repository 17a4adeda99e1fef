"""The control with one fault at a time."""

import asyncio
import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

_CONTROL = Path(__file__).parents[4] / "adapters" / "bare" / "adapter.py"
_spec = importlib.util.spec_from_file_location("control", _CONTROL)
control = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(control)


class Heavy(control.Bare):
    async def invoke(self, request):
        end = time.thread_time() + 0.05
        while time.thread_time() < end:
            pass
        return await super().invoke(request)


class DiesAtItsStart(control.Bare):
    async def start(self, llm, tools, system_prompt):
        raise RuntimeError("the model card is missing")


class DiesAtItsFirstRequest(control.Bare):
    async def invoke(self, request):
        os.kill(os.getpid(), signal.SIGKILL)


class NeverReady(control.Bare):
    async def start(self, llm, tools, system_prompt):
        sys.stderr.write("still looking for the model card\n")
        sys.stderr.flush()
        await asyncio.Event().wait()


class AlwaysFails(control.Bare):
    async def invoke(self, request):
        raise RuntimeError("the parser gave up")


class FailsAfterTheFirst(control.Bare):
    async def start(self, llm, tools, system_prompt):
        await super().start(llm, tools, system_prompt)
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])  # noqa: ASYNC220 - it starts at once

    async def invoke(self, request):
        if self.__dict__.setdefault("first", request) is request:
            return await super().invoke(request)
        raise RuntimeError("the parser gave up")


class WrongToken(control.Bare):
    async def invoke(self, request):
        answer = await super().invoke(request)
        return answer.replace("RE-", "ST-")


class Hangs(control.Bare):
    async def invoke(self, request):
        await asyncio.Event().wait()
