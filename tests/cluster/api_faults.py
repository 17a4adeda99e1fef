"""What a Kubernetes API may do to one request, for the fake one."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

from aiohttp import web

Fault = Callable[[web.Request], Awaitable[web.StreamResponse | None]]


def status(code: int) -> Fault:
    async def answer(_: web.Request) -> web.StreamResponse | None:
        return web.json_response(
            {"kind": "Status", "status": "Failure", "code": code, "message": "a fault"}, status=code
        )

    return answer


def reset_after(content: bytes) -> Fault:
    """A stream that is cut in its middle: a part of the output has come, and no end."""

    async def answer(request: web.Request) -> web.StreamResponse | None:
        socket = web.WebSocketResponse(protocols=["v4.channel.k8s.io"])
        await socket.prepare(request)
        await socket.send_bytes(b"\1" + content)
        request.transport.abort()
        return socket

    return answer


async def cut(request: web.Request) -> web.StreamResponse | None:
    """The connection is reset before an answer."""
    request.transport.abort()
    return web.Response()


def truncated(content: bytes, **said: object) -> Fault:
    """A stream that says that all went well, and has lost a part of the output; the hash is of all of it.

    said: what else the program said of it.
    """

    async def answer(request: web.Request) -> web.StreamResponse | None:
        socket = web.WebSocketResponse(protocols=["v4.channel.k8s.io"])
        await socket.prepare(request)
        await socket.send_bytes(b"\1" + content)
        await socket.send_bytes(b"\2" + json.dumps({"sha256": "of all", **said}).encode())
        await socket.send_bytes(b"\3" + json.dumps({"status": "Success"}).encode())
        await socket.close()
        return socket

    return answer
