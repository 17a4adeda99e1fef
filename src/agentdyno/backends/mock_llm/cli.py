"""The mock LLM's command line, and the life of its process."""

from __future__ import annotations

import argparse
import asyncio
import gc
import signal
import socket
import sys
from collections.abc import Sequence

import msgspec
import uvloop

from agentdyno.backends.mock_llm.http import DEFAULT_MAX_BODY_BYTES, Connections
from agentdyno.backends.mock_llm.service import Service
from agentdyno.contract.run import ExitCode
from agentdyno.contract.scenario import SCENARIOS, BackendTiming
from agentdyno.contract.timing import FORMS
from agentdyno.contract.trace import Service as Sending
from agentdyno.emit.sender import Sender, parse_address

DEFAULT_MODEL = "agentdyno-mock"
_BACKLOG = 4096
_EPILOG = f"""\
Distributions are written in words: {FORMS}.

examples:
  python -m agentdyno.backends.mock_llm --port 8001
  python -m agentdyno.backends.mock_llm --port 8001 --scenario parallel --seed 7
  python -m agentdyno.backends.mock_llm --port 8001 \\
      --timing '{{"ttft_ms": "lognormal:120:0.4", "tokens_per_s": "const:80", "max_num_seqs": 64}}'
  curl -s http://127.0.0.1:8001/stats
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Put the mock LLM's arguments on `parser`."""
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--port", type=int, help="port to listen on; 0 takes a free one and says which")
    where.add_argument("--fd", type=int, help="an inherited listening socket's file descriptor")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--scenario", choices=sorted(SCENARIOS), default="chain", help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="seed of all draws (default: %(default)s)")
    parser.add_argument(
        "--timing",
        default="{}",
        metavar="JSON",
        help="ttft_ms, tokens_per_s, answer_tokens, max_num_seqs (default: none)",
    )
    parser.add_argument("--model", default=DEFAULT_MODEL, help="the model's name (default: %(default)s)")
    parser.add_argument("--max-model-len", type=int, help="prompts of as many tokens get 400 (default: no limit)")
    parser.add_argument("--api-key", help="without it, requests under /v1 get 401 (default: none is needed)")
    parser.add_argument("--spans", metavar="HOST:PORT", help="the recorder that served calls are told to")
    parser.add_argument(
        "--max-body-bytes",
        type=int,
        default=DEFAULT_MAX_BODY_BYTES,
        help="longer requests get 413 (default: %(default)s)",
    )
    parser.add_argument(
        "--grace-s", type=float, default=5.0, help="seconds that answers may take after SIGTERM (default: %(default)s)"
    )


def make_parser(prog: str = "python -m agentdyno.backends.mock_llm") -> argparse.ArgumentParser:
    """The command line; `agentdyno mock-llm` uses it under its own name."""
    parser = argparse.ArgumentParser(
        prog=prog,
        description="A scripted, OpenAI-compatible LLM: POST /v1/chat/completions (whole and streamed), "
        "GET /v1/models, /stats, /metrics, /health; POST /stats/reset.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    return parser


def main(argv: Sequence[str] | None = None, prog: str = "python -m agentdyno.backends.mock_llm") -> int:
    """Run the server until SIGTERM or Ctrl-C; the exit code is 0 after an orderly stop, 2 for a usage error."""
    parser = make_parser(prog)
    arguments = parser.parse_args(argv)
    try:
        spans = Sender(parse_address(arguments.spans), Sending.BACKEND) if arguments.spans else None
    except ValueError as error:
        parser.error(f"--spans: {error}")
    try:
        timing = msgspec.json.decode(arguments.timing, type=BackendTiming)
        service = Service(
            scenario=arguments.scenario,
            seed=arguments.seed,
            timing=timing,
            model=arguments.model,
            spans=spans,
            max_model_len=arguments.max_model_len,
            api_key=arguments.api_key,
        )
    except ValueError as error:
        parser.error(f"--timing: {error}")
    try:
        listener = _listen(arguments.host, arguments.port, arguments.fd)
    except (OSError, OverflowError) as error:
        place = f"file descriptor {arguments.fd}" if arguments.port is None else f"{arguments.host}:{arguments.port}"
        sys.stderr.write(f"{prog}: cannot listen on {place}: {error}.\n")
        return ExitCode.USAGE
    connections = Connections(service.handle, service.meter, arguments.max_body_bytes)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(listener, connections, arguments.grace_s, spans))


def _listen(host: str, port: int | None, fd: int | None) -> socket.socket:
    if port is None:
        listener = socket.socket(fileno=fd)
        if listener.family not in (socket.AF_INET, socket.AF_INET6) or listener.type != socket.SOCK_STREAM:
            raise OSError("it is not a TCP socket")
        listener.listen(_BACKLOG)  # Harmless when it listens already; an error, said here, when it never can.
        return listener
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=_BACKLOG)


async def _serve(listener: socket.socket, connections: Connections, grace_s: float, spans: Sender | None) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    server = await loop.create_server(connections.connect, sock=listener, backlog=_BACKLOG)
    address = listener.getsockname()
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    sys.stdout.write(f"Mock LLM listening on http://{host}:{address[1]}\n")
    sys.stdout.flush()
    # What exists by now lives as long as the process: keep the collector from walking it.
    gc.collect()
    gc.freeze()
    if spans is not None:
        spans.start()
    await stop.wait()
    server.close()
    if not await connections.drain(grace_s):
        sys.stderr.write(
            f"Some answers were not finished {grace_s:g} s after the signal; their connections were cut.\n"
        )
    if spans is not None:
        await spans.stop()
    return ExitCode.VALID
