"""The offline guard, in a process of its own because an audit hook cannot be removed."""

import socket
import subprocess
import sys
import textwrap

import pytest

PREAMBLE = """
import asyncio, socket, sys
from agentdyno.host.offline import OutboundRefused, refuse_all_but_loopback
refuse_all_but_loopback()
"""


def guarded(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = PREAMBLE + textwrap.dedent(code)
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


REFUSED = {
    "connect to an address": ("socket.socket().connect(('192.0.2.1', 80))", "192.0.2.1"),
    "connect_ex": ("socket.socket().connect_ex(('192.0.2.1', 80))", "192.0.2.1"),
    "connect by IPv6": ("socket.socket(socket.AF_INET6).connect(('2001:db8::1', 80))", "2001:db8::1"),
    "a datagram": ("socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53))", "192.0.2.1"),
    "a datagram by sendmsg": (
        "socket.socket(type=socket.SOCK_DGRAM).sendmsg([b'x'], [], 0, ('192.0.2.1', 53))",
        "192.0.2.1",
    ),
    "getaddrinfo": ("socket.getaddrinfo('telemetry.invalid', 443)", "telemetry.invalid"),
    "getaddrinfo of bytes": ("socket.getaddrinfo(b'telemetry.invalid', 443)", "telemetry.invalid"),
    "gethostbyname": ("socket.gethostbyname('telemetry.invalid')", "telemetry.invalid"),
    "gethostbyname_ex": ("socket.gethostbyname_ex('telemetry.invalid')", "telemetry.invalid"),
    "gethostbyaddr": ("socket.gethostbyaddr('192.0.2.1')", "192.0.2.1"),
    "create_connection": ("socket.create_connection(('telemetry.invalid', 443))", "telemetry.invalid"),
    "asyncio, by name": ("asyncio.run(asyncio.open_connection('telemetry.invalid', 443))", "telemetry.invalid"),
    "asyncio, by address": ("asyncio.run(asyncio.open_connection('192.0.2.1', 443))", "192.0.2.1"),
}


@pytest.mark.parametrize("action", REFUSED)
def test_anything_but_loopback_is_refused_and_named(action):
    code, name = REFUSED[action]
    done = guarded(f"try:\n    {code}\nexcept OutboundRefused as error:\n    print(error)\n    sys.exit(7)\n")
    assert done.returncode == 7, done.stderr
    assert done.stdout == f"the offline guard refused a connection to {name!r}\n"
    assert f"OFFLINE-GUARD: an outbound connection to {name!r} was refused.\n" in done.stderr


def test_a_refusal_that_the_program_swallows_is_still_in_its_log():
    done = guarded("try:\n    socket.getaddrinfo('telemetry.invalid', 443)\nexcept OSError:\n    pass\n")
    assert done.returncode == 0
    assert "OFFLINE-GUARD: an outbound connection to 'telemetry.invalid' was refused." in done.stderr


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.9.9.9"])
def test_loopback_passes(host):
    with socket.create_server(("0.0.0.0", 0)) as server:
        port = str(server.getsockname()[1])
        done = guarded(
            """
            host, port = sys.argv[1], int(sys.argv[2])
            socket.create_connection((host, port)).close()
            async def twice():
                _, writer = await asyncio.open_connection(host, port)
                writer.close()
            asyncio.run(twice())
            """,
            *(host, port),
        )
    assert done.returncode == 0, done.stderr
    assert "OFFLINE-GUARD" not in done.stderr


def test_unix_sockets_and_listening_pass(tmp_path):
    done = guarded(
        """
        server = socket.create_server(('127.0.0.1', 0))
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(sys.argv[1])
        listener.listen()
        socket.socket(socket.AF_UNIX).connect(sys.argv[1])
        socket.getaddrinfo(None, 80)
        """,
        str(tmp_path / "s"),
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
