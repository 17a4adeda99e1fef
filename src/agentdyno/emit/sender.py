"""Sends raw trace records to the recorder: bounded, in batches, never in a request's way.

A recorder that stalls, refuses or dies costs records, which are counted, and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

import msgspec

from agentdyno.contract.trace import FRAME_HEAD_BYTES, Goodbye, Hello, Record, Service

FLUSH_INTERVAL_S = 0.25
CAPACITY = 20_000  # records that wait; beyond it the newest are dropped, so that what is kept has no gap inside
_WRITE_BUFFER_BYTES = 4 << 20
_CONNECT_TIMEOUT_S = 1.0
_LAST_FLUSH_S = 2.0


class Sender:
    """One connection to the recorder, made and remade in the background. Use from one event loop.

    address: (host, port). capacity: records that may wait.
    """

    def __init__(self, address: tuple[str, int], service: Service, *, capacity: int = CAPACITY) -> None:
        self._address = address
        self._service = service
        self._capacity = capacity
        self._waiting: list[Callable[[], Record]] = []
        self._writer: asyncio.StreamWriter | None = None
        self._encoder = msgspec.msgpack.Encoder()
        self._task: asyncio.Task[None] | None = None
        self.recorded = 0
        self.dropped = 0

    def add(self, make: Callable[[], Record]) -> None:
        """Keep one record for the next batch; `make` is called then, not now. Costs a microsecond."""
        self.recorded += 1
        if len(self._waiting) >= self._capacity:
            self.dropped += 1
            return
        self._waiting.append(make)

    def start(self) -> None:
        """Begin sending; call on the running loop."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Send what waits, for two seconds at most, and close."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(_LAST_FLUSH_S):
                await self._flush()
                if self._writer is not None:
                    await self._writer.drain()
                    self._writer.close()
                    await self._writer.wait_closed()
        self.dropped += len(self._waiting)
        self._waiting.clear()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_INTERVAL_S)
            await self._flush()

    async def _flush(self) -> None:
        writer = self._writer or await self._connect()
        if writer is None:
            return
        if writer.is_closing():
            self._writer = None
            return
        if writer.transport.get_write_buffer_size() > _WRITE_BUFFER_BYTES:
            return  # the recorder does not read: what comes waits here, up to the capacity
        batch, self._waiting = self._waiting, []
        records: list[Record] = [make() for make in batch]
        self._write(writer, [*records, Goodbye(self._service, self.recorded, self.dropped)])

    async def _connect(self) -> asyncio.StreamWriter | None:
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                _, writer = await asyncio.open_connection(*self._address)
        except (OSError, TimeoutError):
            return None  # tried again at the next flush; what is lost meanwhile is counted
        writer.transport.set_write_buffer_limits(high=2 * _WRITE_BUFFER_BYTES)
        self._write(writer, [Hello(self._service, time.monotonic_ns(), time.time_ns())])
        self._writer = writer
        return writer

    def _write(self, writer: asyncio.StreamWriter, records: list[Record]) -> None:
        body = self._encoder.encode(records)
        writer.write(len(body).to_bytes(FRAME_HEAD_BYTES, "big") + body)


def parse_address(text: str) -> tuple[str, int]:
    """`127.0.0.1:4319` as host and port. Raises ValueError with a sentence."""
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit():
        raise ValueError(f"{text!r} is not an address such as 127.0.0.1:4319.")
    return host, int(port)
