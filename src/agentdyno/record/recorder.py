"""The recorder: takes raw trace records and OTLP spans from the processes of a run, and keeps them as they came.

A process of its own beside the rig, so that nothing of it costs the measured process. It appends what it receives
to two files and decodes nothing it does not have to; spans are made of it after the run. With an OTLP endpoint in
its environment (OTEL_EXPORTER_OTLP_ENDPOINT) it also exports the run's spans there while they come.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import msgspec
from aiohttp import web

from agentdyno.contract.run import ExitCode
from agentdyno.contract.trace import ACKNOWLEDGED, FRAME_HEAD_BYTES, MAX_FRAME_BYTES, RecorderLedger
from agentdyno.emit.sender import parse_address
from agentdyno.record.export import Exporter, exporter_from_environment
from agentdyno.record.ledger import write_ledger
from agentdyno.record.otlp import MAX_OTLP_BYTES, OtlpEndpoint
from agentdyno.record.spans import OTLP_FILE, RAW_FILE

_EXPORT_GRACE_S = 3.0


class FrameFile:
    """A file of length-prefixed frames that only grows, and never by a part of a frame."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._bytes = os.fstat(self._descriptor).st_size

    def append(self, body: bytes) -> None:
        """Add one frame. Raises OSError when there is no room; the file then is as it was before."""
        rest = memoryview(len(body).to_bytes(FRAME_HEAD_BYTES, "big") + body)
        size = len(rest)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            os.ftruncate(self._descriptor, self._bytes)
            raise
        self._bytes += size

    def close(self) -> None:
        """Nothing is buffered, so nothing is written."""
        os.close(self._descriptor)


class Recorder:
    """Writes into `folder`: one file for raw frames, one for OTLP requests, and at the end its ledger."""

    def __init__(self, folder: Path, exporter: Exporter | None = None) -> None:
        self.ledger = RecorderLedger()
        self.otlp = OtlpEndpoint(self.ledger, self._keep_otlp)
        self._folder = folder
        self._exporter = exporter
        self._raw = FrameFile(folder / RAW_FILE)
        self._otlp = FrameFile(folder / OTLP_FILE)

    async def on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One sender: frames until it closes, each acknowledged when it is kept.

        A frame that is too long or cut, or a disk that is full, ends the connection, counted; the sender may come
        again with what was not acknowledged.
        """
        head = b""
        try:
            while True:
                head = b""
                head = await reader.readexactly(FRAME_HEAD_BYTES)
                size = int.from_bytes(head, "big")
                if size > MAX_FRAME_BYTES:
                    raise ValueError(f"it announced a frame of {size} bytes")
                self._keep_raw(await reader.readexactly(size))
                writer.write(ACKNOWLEDGED)
        except asyncio.IncompleteReadError as error:
            if error.partial or head:
                self.ledger.broken_connections += 1
        except (ValueError, ConnectionError) as error:
            self.ledger.broken_connections += 1
            sys.stderr.write(f"A sender was cut off: {error}.\n")
        except OSError as error:
            if not self.ledger.unwritten:
                sys.stderr.write(f"Spans cannot be written: {error}. What comes from now on may be lost.\n")
            self.ledger.unwritten += 1
        finally:
            writer.close()

    def _keep_raw(self, body: bytes) -> None:
        self._raw.append(body)
        self.ledger.frames += 1
        self.ledger.raw_bytes += FRAME_HEAD_BYTES + len(body)
        if self._exporter is not None:
            self._exporter.take(body)

    def _keep_otlp(self, body: bytes) -> None:
        self._otlp.append(body)
        if self._exporter is not None:
            self._exporter.take_otlp(body)

    def ledger_now(self) -> RecorderLedger:
        """What it would write if it ended now, its exporter left as it is."""
        if self._exporter is None:
            return self.ledger
        return msgspec.structs.replace(
            self.ledger, exported=self._exporter.exported, export_dropped=self._exporter.dropped
        )

    def close(self) -> None:
        """Write the ledger; after it the files are complete."""
        self._raw.close()
        self._otlp.close()
        write_ledger(self._folder, self.ledger)
        if self._exporter is not None:
            # What comes after is the endpoint's time, which may be cut short.
            self._exporter.close(_EXPORT_GRACE_S)
            self.ledger.exported, self.ledger.export_dropped = self._exporter.exported, self._exporter.dropped
            write_ledger(self._folder, self.ledger)


async def serve(folder: Path, raw: socket.socket, otlp: socket.socket) -> None:
    """Record until SIGTERM or SIGINT."""
    recorder = Recorder(folder, exporter_from_environment(os.environ))
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    frames = await asyncio.start_server(recorder.on_connection, sock=raw)
    runner = web.AppRunner(otlp_application(recorder), access_log=None)
    await runner.setup()
    await web.SockSite(runner, otlp).start()
    await stop.wait()
    frames.close()
    await runner.cleanup()
    recorder.close()


def otlp_application(recorder: Recorder) -> web.Application:
    """`POST /v1/traces`, `GET /healthz`, and `GET /ledger`: the ledger so far, for a recorder that goes on."""

    async def say_ledger(_: web.Request) -> web.Response:
        return web.Response(body=msgspec.json.encode(recorder.ledger_now()), content_type="application/json")

    app = web.Application(client_max_size=MAX_OTLP_BYTES)
    app.router.add_get("/ledger", say_ledger)
    app.router.add_post("/v1/traces", recorder.otlp.on_request)
    app.router.add_get("/healthz", _healthy)
    return app


async def _healthy(_: web.Request) -> web.Response:
    return web.json_response({"status": "ready"})


def main(argv: list[str] | None = None) -> int:
    """The recorder's process."""
    parser = argparse.ArgumentParser(prog="python -m agentdyno.record.recorder", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where the files go")
    for name, what in (("raw", "raw frames"), ("otlp", "OTLP over HTTP")):
        where = parser.add_mutually_exclusive_group(required=True)
        where.add_argument(f"--{name}-fd", type=int, help=f"an inherited listening socket for {what}")
        where.add_argument(f"--{name}", type=parse_address, metavar="HOST:PORT", help=f"where to listen for {what}")
    options = parser.parse_args(argv)
    try:
        raw, otlp = _listener(options.raw, options.raw_fd), _listener(options.otlp, options.otlp_fd)
        asyncio.run(serve(options.folder, raw, otlp))
    except OSError as error:
        sys.stderr.write(f"The recorder could not go on: {error}.\n")
        return ExitCode.INVALID_RUN
    return ExitCode.VALID


def _listener(address: tuple[str, int] | None, fd: int) -> socket.socket:
    """The inherited socket; or, in a container of its own, one at an address that others know."""
    return socket.socket(fileno=fd) if address is None else socket.create_server(address)


if __name__ == "__main__":
    sys.exit(main())
