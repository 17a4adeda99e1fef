"""Sends raw trace records to the recorder: bounded, in batches, never in a request's way.

A recorder that stalls, refuses or dies costs records, which are counted, and nothing else. A frame is kept until
the recorder has acknowledged it and is sent again over the next connection, so that every record is either received
or counted as dropped; a reader leaves out the frame that came twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import platform
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import cast

import msgspec

from agentdyno.contract.trace import FRAME_HEAD_BYTES, MAX_FRAME_BYTES, Goodbye, Hello, Record, Service
from agentdyno.emit.clocks import both_clocks

FLUSH_INTERVAL_S = 0.25
CAPACITY = 20_000  # records that may come between two flushes
FRAME_RECORDS = 200  # so that encoding a frame holds the event loop up for a millisecond or two
PENDING_BYTES = 8 << 20  # encoded and not acknowledged; beyond it the newest are dropped, so that no gap is inside
_WRITE_BUFFER_BYTES = 1 << 20
_CONNECT_TIMEOUT_S = 1.0
_LAST_FLUSH_S = 2.0
_LAST_FLUSH_POLL_S = 0.02
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Sender:
    """One connection to the recorder, made and remade in the background. Use from one event loop.

    address: (host, port). capacity: records that may wait for the next flush. pending_bytes: what may wait for the
    recorder. recorded and dropped count records; a record is in neither the recorder's hands nor `dropped` only
    while it waits.
    """

    def __init__(
        self,
        address: tuple[str, int],
        service: Service,
        *,
        capacity: int = CAPACITY,
        pending_bytes: int = PENDING_BYTES,
    ) -> None:
        self._address = address
        self._service = service
        self._capacity = capacity
        self._room_bytes = pending_bytes
        self._waiting: list[Callable[[], Record]] = []
        self._frames: deque[_Frame] = deque()
        self._pending_bytes = 0
        self._written = 0  # how many of the frames stand in the connection, at the head of the queue
        self._connection: _Connection | None = None
        self._encoder = msgspec.msgpack.Encoder()
        self._task: asyncio.Task[None] | None = None
        self._stopped = False
        self.recorded = 0
        self.dropped = 0

    def add(self, make: Callable[[], Record]) -> None:
        """Keep one record for the next batch; `make` is called then, not now. Costs a microsecond."""
        self.recorded += 1
        if self._stopped or len(self._waiting) >= self._capacity:
            self.dropped += 1
            return
        self._waiting.append(make)

    def counters(self) -> tuple[tuple[str, str, int], ...]:
        """Its ledger as counters of Prometheus: name, help text, count."""
        lost = "Records that the recorder did not acknowledge and that were thrown away."
        return (
            ("agentdyno_spans_recorded_total", "Records of traced requests made.", self.recorded),
            ("agentdyno_spans_dropped_total", lost, self.dropped),
        )

    def start(self) -> None:
        """Begin sending; call on the running loop."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Send what waits and see it acknowledged, for two seconds at most, and close; the rest is dropped."""
        self._stopped = True
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_FLUSH_S):
                await self._encode_waiting()
                self._append([])
                while self._frames:
                    await self._send()
                    await asyncio.sleep(_LAST_FLUSH_POLL_S)
        if self._connection is not None:
            self._connection.close()
        self.dropped += sum(frame.records for frame in self._frames) + len(self._waiting)
        self._frames.clear()
        self._waiting.clear()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_INTERVAL_S)
            await self._encode_waiting()
            await self._send()

    # encoding

    async def _encode_waiting(self) -> None:
        """Turn what waits into frames, so that what a request has held is let go even when nobody reads."""
        while self._waiting:
            batch = self._waiting[:FRAME_RECORDS]
            del self._waiting[: len(batch)]
            self._append(batch)
            await asyncio.sleep(0)  # requests go first

    def _append(self, batch: list[Callable[[], Record]]) -> None:
        try:
            records = [make() for make in batch]
            frame = self._frame(records)
        except Exception:
            # One of them cannot be made or encoded, a text with half a surrogate pair for example: the others can.
            records = [record for make in batch if (record := self._encodable(make)) is not None]
            self.dropped += len(batch) - len(records)
            frame = self._frame(records)
        if self._pending_bytes + len(frame) > self._room_bytes or len(frame) > MAX_FRAME_BYTES:
            self.dropped += len(records)
            return
        self._frames.append(_Frame(len(records), frame))
        self._pending_bytes += len(frame)

    def _frame(self, records: list[Record]) -> bytes:
        body = self._encoder.encode([*records, Goodbye(self._service, self.recorded, self.dropped)])
        return len(body).to_bytes(FRAME_HEAD_BYTES, "big") + body

    def _encodable(self, make: Callable[[], Record]) -> Record | None:
        try:
            record = make()
            self._encoder.encode(record)
        except Exception:  # whatever it is, it costs this one record, which the caller counts
            return None
        return record

    # the connection

    async def _send(self) -> None:
        """Write what is not written yet, as far as the recorder takes it."""
        connection = self._connection or await self._connect()
        if connection is None:
            return
        while self._written < len(self._frames) and not connection.full:
            connection.write(self._frames[self._written].content)
            self._written += 1

    async def _connect(self) -> _Connection | None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                connection = _Connection(self._kept, self._lost)
                await loop.create_connection(lambda: connection, *self._address)
        except (OSError, TimeoutError):
            return None  # tried again at the next flush; what is lost meanwhile is counted
        self._connection = connection
        hello = Hello(self._service, *both_clocks(), _machine())
        body = self._encoder.encode([hello])
        connection.write(len(body).to_bytes(FRAME_HEAD_BYTES, "big") + body)
        return connection

    def _kept(self) -> None:
        """The recorder has kept the oldest frame."""
        if self._written:
            self._pending_bytes -= len(self._frames.popleft().content)
            self._written -= 1

    def _lost(self) -> None:
        """The connection is gone: what was not acknowledged is sent again over the next one."""
        self._connection = None
        self._written = 0


class _Frame(msgspec.Struct):
    records: int
    content: bytes


class _Connection(asyncio.Protocol):
    """Writes frames and counts acknowledgements, the first of which is the hello's."""

    def __init__(self, on_kept: Callable[[], None], on_lost: Callable[[], None]) -> None:
        self._on_kept = on_kept
        self._on_lost = on_lost
        self._greeted = False
        self._transport: asyncio.Transport | None = None
        self.full = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)

    def data_received(self, data: bytes) -> None:
        for _ in data:
            if self._greeted:
                self._on_kept()
            self._greeted = True

    def eof_received(self) -> None:
        self.full = True  # nothing is acknowledged any more; the transport closes now

    def pause_writing(self) -> None:
        self.full = True

    def resume_writing(self) -> None:
        self.full = False

    def connection_lost(self, exc: Exception | None) -> None:
        self.full = True
        self._on_lost()

    def write(self, frame: bytes) -> None:
        if self._transport is not None:
            self._transport.write(frame)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def parse_address(text: str) -> tuple[str, int]:
    """`127.0.0.1:4319` as host and port. Raises ValueError with a sentence."""
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit():
        raise ValueError(f"{text!r} is not an address such as 127.0.0.1:4319.")
    return host, int(port)


def _machine() -> str:
    """Names the machine whose monotonic clock this is: of containers on one machine too."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:  # not Linux
        return platform.node()
