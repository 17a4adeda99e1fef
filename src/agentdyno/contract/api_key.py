"""The key for an LLM backend, taken from the environment only where a header can carry it.

A client that cannot send a header quotes it in its error, which would be the key in a log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentdyno.contract.errors import UserError


class ApiKeyError(UserError):
    """A key that cannot be sent; the text names the variable and never the key."""


def read_api_key(environ: Mapping[str, str], names: Sequence[str]) -> str | None:
    """Of the first of these variables that holds one, without white space around it. Raises ApiKeyError."""
    for name in names:
        key = environ.get(name, "").strip()
        if not all("!" <= character <= "~" for character in key):
            raise ApiKeyError(
                f"The key in {name} (not shown here) cannot be sent in a header: it has a space in it, or something "
                "that is not printable ASCII. Set it again."
            )
        if key:
            return key
    return None
