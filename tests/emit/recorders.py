"""A recorder played on a real socket, well-behaved or not."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from agentdyno.contract.trace import ACKNOWLEDGED, FRAME_HEAD_BYTES, Goodbye, Hello, Record, ServedCall
from agentdyno.record.spans import decode


def call(number: int) -> ServedCall:
    """A record that can be told from others by its span id."""
    return ServedCall(bytes(15) + b"\1", 2, number, 3, 4, 5, 6, 200, 7, 8)


class PlayedRecorder:
    """Keeps each frame, in order. acknowledges: whether the n-th frame (hellos too) is acknowledged; one that is not
    ends the connection, after it was kept. reads: set to let it read at all.
    """

    def __init__(self, acknowledges: Callable[[int], bool] = lambda _: True) -> None:
        self.frames: list[list[Record]] = []
        self.connections = 0
        self.reads = asyncio.Event()
        self.reads.set()
        self._acknowledges = acknowledges
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def listen(self, listener: socket.socket) -> None:
        self._server = await asyncio.start_server(self._on_connection, sock=listener)

    async def die(self) -> None:
        """Nobody listens any more, and what was connected is cut."""
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0)

    @property
    def calls(self) -> list[int]:
        """The span ids of all calls in the order they came, repeated ones too."""
        return [r.span_id for frame in self.frames for r in frame if isinstance(r, ServedCall)]

    @property
    def hellos(self) -> list[Hello]:
        return [r for frame in self.frames for r in frame if isinstance(r, Hello)]

    @property
    def last(self) -> Goodbye:
        return [r for frame in self.frames for r in frame if isinstance(r, Goodbye)][-1]

    async def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            while True:
                await self.reads.wait()
                size = int.from_bytes(await reader.readexactly(FRAME_HEAD_BYTES), "big")
                self.frames.append(decode(await reader.readexactly(size)))
                if not self._acknowledges(len(self.frames)):
                    writer.transport.abort()
                    return
                writer.write(ACKNOWLEDGED)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()


def listener_on(port: int = 0) -> socket.socket:
    """A listening socket with a receive buffer so small that a stall is felt soon."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    listener.bind(("127.0.0.1", port))
    listener.listen()
    return listener


@asynccontextmanager
async def recording(
    acknowledges: Callable[[int], bool] = lambda _: True,
) -> AsyncIterator[tuple[PlayedRecorder, tuple[str, int]]]:
    """A played recorder and its address."""
    played = PlayedRecorder(acknowledges)
    listener = listener_on()
    await played.listen(listener)
    try:
        yield played, listener.getsockname()
    finally:
        played.reads.set()
        await played.die()


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - what is waited for has no event of its own
        await asyncio.sleep(0.001)
