"""The offline guard: refuses connections and look-ups of anything but loopback, and says who was asked for.

For conformance runs only. It works through audit events, which asyncio's own loop raises and uvloop does not, so
the host runs on asyncio's loop while it is on. A name given straight to `socket.connect` is looked up before Python
says so: the connection is refused and named all the same when the look-up succeeds, and fails unnamed when it does not.
"""

from __future__ import annotations

import ipaddress
import sys
from typing import Any

MARK = "OFFLINE-GUARD"


class OutboundRefused(ConnectionRefusedError):
    """Something in this process tried to reach an address that is not loopback."""


def refuse_all_but_loopback() -> None:
    """Install the guard for the rest of this process's life."""
    sys.addaudithook(_audit)


_LOOK_UPS = frozenset(("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"))
_SENDS = frozenset(("socket.connect", "socket.sendto", "socket.sendmsg"))


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event in _LOOK_UPS:
        _check(arguments[0])
    elif event in _SENDS:
        address = arguments[1]
        if isinstance(address, tuple):
            _check(address[0])


def _check(host: Any) -> None:
    name = host.decode("ascii", "replace") if isinstance(host, bytes) else host
    if name in (None, "", "localhost"):
        return
    try:
        if ipaddress.ip_address(name).is_loopback:
            return
    except ValueError:  # a name, not an address: refused below
        pass
    sys.stderr.write(f"{MARK}: an outbound connection to {name!r} was refused.\n")
    raise OutboundRefused(f"the offline guard refused a connection to {name!r}")
