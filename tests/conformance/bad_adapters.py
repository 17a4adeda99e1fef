"""Adapters that each break one rule: the control with one thing wrong. What each must fail, and nothing else."""

from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent, indent

PROVEN = "every answer carries the proof of its three tool calls"
APART = "concurrent requests do not see each other"
DECLARED = "LLM and tool calls are as declared, and as the mock counted them"
AGAIN = "a request that was asked before is worked on again"
NOTHING_CARRIED = "a session sees nothing of the others"
IN_CONTEXT = "every tool call runs in its request's context"
STREAMS = "a streamed answer adds up to the final one"
TOOLS_CHANGE = "a removed tool is not offered, an added one is"
STOPS = "a timed-out request is a 504 at once, and its work stops"
NO_BACKEND = "a backend that is gone is an error, not a hang or an answer"
ENDS = "SIGTERM ends it"
STAYS_HOME = "reaches out to nothing but loopback"
STARTS = "starts and becomes ready"


@dataclass(frozen=True)
class Bad:
    """fails: the one check. says: part of its sentence. code: methods that replace the control's."""

    fails: str
    says: str
    code: str
    capabilities: tuple[str, ...] = ()


BAD = {
    "skips-a-tool": Bad(
        PROVEN,
        "wrong_tools",
        """
        async def run_tools(self, calls):
            real = [call for call in calls if call["function"]["name"] != "resolution"]
            made_up = [call for call in calls if call["function"]["name"] == "resolution"]
            found = {call["id"]: message for call, message in zip(real, await super().run_tools(real))}
            for call in made_up:
                reference = orjson.loads(call["function"]["arguments"])["reference"]
                order = reference[3:-17] if reference.startswith("PO") else reference[4:]
                text = "RE-" + order + "-0123456789abcdef"
                found[call["id"]] = {"role": "tool", "tool_call_id": call["id"], "content": text}
            return [found[call["id"]] for call in calls]
        """,
    ),
    "answers-from-a-cache": Bad(
        AGAIN,
        "The second time: Request 500: wrong_tools.",
        """
        async def invoke(self, request):
            known = self.__dict__.setdefault("known", {})
            if request.input not in known:
                known[request.input] = await super().invoke(request)
            return known[request.input]
        """,
    ),
    "calls-tools-out-of-order": Bad(
        PROVEN,
        "Request 0: tool_failed.",
        """
        async def run_tools(self, calls):
            if calls[0]["function"]["name"] != "resolution":
                with contextlib.suppress(Exception):
                    await self.tools["resolution"].function(**orjson.loads(calls[0]["function"]["arguments"]))
            return await super().run_tools(calls)
        """,
    ),
    "makes-a-fifth-llm-call": Bad(
        DECLARED,
        "5 LLM calls for a request; adapter.toml declares llm_calls = 4.",
        """
        async def invoke(self, request):
            async with self.session.post(self.url, data=self.body(*self.begin(request))) as response:
                await response.read()
            return await super().invoke(request)
        """,
    ),
    "calls-the-llm-past-the-border": Bad(
        DECLARED,
        "some go through an HTTP client that the border does not wrap",
        r"""
        async def invoke(self, request):
            body = self.body(*self.begin(request))
            where = urllib.parse.urlsplit(self.url)
            reader, writer = await asyncio.open_connection(where.hostname, where.port)
            try:
                writer.write(b"POST " + where.path.encode() + b" HTTP/1.1\r\nhost: it\r\n")
                writer.write(b"content-length: " + str(len(body)).encode() + b"\r\n\r\n" + body)
                await reader.readline()
            finally:
                writer.close()
            return await super().invoke(request)
        """,
    ),
    "swallows-cancellation": Bad(
        STOPS,
        "cancellation is swallowed",
        """
        async def invoke(self, request):
            return await asyncio.shield(super().invoke(request))
        """,
    ),
    "reaches-out": Bad(
        STAYS_HOME,
        "an outbound connection to 'telemetry.example' was refused",
        """
        async def start(self, *arguments):
            with contextlib.suppress(OSError):
                socket.create_connection(("telemetry.example", 443), timeout=1)
            await super().start(*arguments)
        """,
    ),
    "runs-tools-in-a-foreign-context": Bad(
        IN_CONTEXT,
        "tool calls ran outside their request's context variables",
        """
        async def start(self, *arguments):
            await super().start(*arguments)
            self.waiting = asyncio.Queue()
            self.worker = asyncio.create_task(self.work())

        async def work(self):
            while True:
                calls, done = await self.waiting.get()
                done.set_result(await super().run_tools(calls))

        async def run_tools(self, calls):
            done = asyncio.get_running_loop().create_future()
            self.waiting.put_nowait((calls, done))
            return await done
        """,
    ),
    "keeps-the-last-request": Bad(
        APART,
        "wrong_",
        """
        async def invoke(self, request):
            self.request = request
            await asyncio.sleep(0.02)
            return await super().invoke(self.request)
        """,
    ),
    "leaks-between-sessions": Bad(
        NOTHING_CARRIED,
        "something is carried from one session to the next",
        """
        def begin(self, request):
            messages, tools = super().begin(request)
            heard = self.__dict__.setdefault("heard", [])
            messages[1:1] = heard
            heard.append(messages[-1])
            return messages, tools
        """,
    ),
    "streams-half-of-it": Bad(
        STREAMS,
        "The streamed answer is not proven: wrong_answer.",
        """
        async def stream(self, request):
            yield (await super().invoke(request))[:20]
        """,
        ("stream",),
    ),
    "keeps-removed-tools": Bad(
        TOOLS_CHANGE,
        "A removed tool was still used.",
        """
        async def add_tool(self, tool):
            pass

        async def remove_tool(self, name):
            pass
        """,
        ("dynamic_tools",),
    ),
    "makes-an-answer-up": Bad(
        NO_BACKEND,
        "Without a backend the answer was 200",
        """
        async def invoke(self, request):
            try:
                return await super().invoke(request)
            except aiohttp.ClientError:
                return "All is well."
        """,
    ),
    "does-not-end": Bad(
        ENDS,
        "was killed by SIGKILL",
        """
        async def close(self):
            await asyncio.sleep(3600)
        """,
    ),
    "dies-at-its-start": Bad(
        STARTS,
        "ModuleNotFoundError: No module named 'not_in_the_lock'",
        """
        async def start(self, *arguments):
            import not_in_the_lock
        """,
    ),
}

HEAD = """
import asyncio, contextlib, importlib.util, socket, urllib.parse

import aiohttp, orjson

spec = importlib.util.spec_from_file_location("control", {control!r})
control = importlib.util.module_from_spec(spec)
spec.loader.exec_module(control)


class It(control.Bare):
"""
TOML = """
environment = "bare"
[[variant]]
name = "{name}"
title = "{name}"
entry = "adapter:It"
capabilities = {capabilities}
"""


def write(name: str, control: Path, root: Path) -> Path:
    """Make the adapter folder `root`/`name`. control: the control's adapter.py."""
    bad = BAD[name]
    folder = root / name
    folder.mkdir()
    head = HEAD.format(control=str(control))
    (folder / "adapter.py").write_text(head + indent(dedent(bad.code), "    "), encoding="utf-8")
    toml = TOML.format(name=name, capabilities=list(bad.capabilities))
    (folder / "adapter.toml").write_text(toml, encoding="utf-8")
    return folder
