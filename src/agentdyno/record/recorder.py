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
from typing import BinaryIO

import msgspec
from aiohttp import web
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from agentdyno.contract.run import ExitCode
from agentdyno.contract.trace import FRAME_HEAD_BYTES, MAX_FRAME_BYTES
from agentdyno.record.export import Exporter, exporter_from_environment
from agentdyno.record.spans import OTLP_FILE, RAW_FILE

LEDGER_FILE = "recorder.json"
MAX_OTLP_BYTES = 8 << 20
_PROTOBUF = "application/x-protobuf"


class RecorderLedger(msgspec.Struct):
    """What the recorder took and what it could not use."""

    frames: int = 0
    raw_bytes: int = 0
    broken_connections: int = 0
    otlp_requests: int = 0
    otlp_spans: int = 0
    otlp_malformed: int = 0
    exported: int = 0
    export_dropped: int = 0


class Recorder:
    """Writes into `folder`; one file for raw frames, one for OTLP requests, each length-prefixed."""

    def __init__(self, folder: Path, exporter: Exporter | None) -> None:
        self.ledger = RecorderLedger()
        self._folder = folder
        self._exporter = exporter
        self._raw: BinaryIO = (folder / RAW_FILE).open("ab")
        self._otlp: BinaryIO = (folder / OTLP_FILE).open("ab")

    async def on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One sender: frames until it closes. A frame that is too long or cut ends the connection, counted."""
        try:
            while True:
                head = await reader.readexactly(FRAME_HEAD_BYTES)
                size = int.from_bytes(head, "big")
                if size > MAX_FRAME_BYTES:
                    raise ValueError(f"a frame of {size} bytes")
                self._keep(head + await reader.readexactly(size))
        except asyncio.IncompleteReadError as error:
            if error.partial:
                self.ledger.broken_connections += 1
        except (ValueError, ConnectionError) as error:
            self.ledger.broken_connections += 1
            sys.stderr.write(f"A sender was cut off: {error}.\n")
        finally:
            writer.close()

    def _keep(self, frame: bytes) -> None:
        self._raw.write(frame)
        self._raw.flush()
        self.ledger.frames += 1
        self.ledger.raw_bytes += len(frame)
        if self._exporter is not None:
            self._exporter.take(frame[FRAME_HEAD_BYTES:])

    async def on_otlp(self, request: web.Request) -> web.Response:
        """`POST /v1/traces`, OTLP over HTTP with protobuf bodies; gzip is undone by the server below."""
        self.ledger.otlp_requests += 1
        if request.content_type != _PROTOBUF:
            self.ledger.otlp_malformed += 1
            return web.Response(status=415, text=f"This takes {_PROTOBUF}.\n")
        try:
            body = await request.read()
            found = ExportTraceServiceRequest.FromString(body)
        except (DecodeError, web.HTTPBadRequest, ValueError) as error:
            self.ledger.otlp_malformed += 1
            return web.Response(status=400, text=f"That is not an OTLP trace request: {error}.\n")
        spans = sum(len(scope.spans) for resource in found.resource_spans for scope in resource.scope_spans)
        self.ledger.otlp_spans += spans
        self._otlp.write(len(body).to_bytes(FRAME_HEAD_BYTES, "big") + body)
        self._otlp.flush()
        return web.Response(body=ExportTraceServiceResponse().SerializeToString(), content_type=_PROTOBUF)

    def close(self) -> None:
        """Write the ledger; after it the files are complete."""
        if self._exporter is not None:
            self._exporter.close()
            self.ledger.exported, self.ledger.export_dropped = self._exporter.exported, self._exporter.dropped
        self._raw.close()
        self._otlp.close()
        (self._folder / LEDGER_FILE).write_bytes(msgspec.json.encode(self.ledger) + b"\n")


async def serve(folder: Path, raw: socket.socket, otlp: socket.socket) -> None:
    """Record until SIGTERM or SIGINT."""
    recorder = Recorder(folder, exporter_from_environment(os.environ))
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    frames = await asyncio.start_server(recorder.on_connection, sock=raw)
    app = web.Application(client_max_size=MAX_OTLP_BYTES)
    app.router.add_post("/v1/traces", recorder.on_otlp)
    app.router.add_get("/healthz", lambda _: _ok())
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.SockSite(runner, otlp).start()
    await stop.wait()
    frames.close()
    await runner.cleanup()
    recorder.close()


async def _ok() -> web.Response:
    return web.json_response({"status": "ready"})


def main(argv: list[str] | None = None) -> int:
    """The recorder's process."""
    parser = argparse.ArgumentParser(prog="python -m agentdyno.record.recorder", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where the files go")
    parser.add_argument("--raw-fd", type=int, required=True, help="an inherited listening socket for raw frames")
    parser.add_argument("--otlp-fd", type=int, required=True, help="an inherited listening socket for OTLP over HTTP")
    options = parser.parse_args(argv)
    try:
        asyncio.run(serve(options.folder, socket.socket(fileno=options.raw_fd), socket.socket(fileno=options.otlp_fd)))
    except OSError as error:
        sys.stderr.write(f"The recorder could not go on: {error}.\n")
        return ExitCode.INVALID_RUN
    return ExitCode.VALID


if __name__ == "__main__":
    sys.exit(main())
