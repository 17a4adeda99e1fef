"""Proof of work: the keyed token chain that a request must carry through its three tools.

Each arrival has its own order id. A tool returns a token that is a keyed hash of its input, and the
next tool needs that token as its reference; the final answer must carry the last one. The host (tools)
and the load side (verification) hold the same per-run key; the framework and the LLM never see it, so
a skipped, repeated, reordered or cached tool call cannot produce an acceptable answer.

Shapes (all lower-case hex but for the prefix)::

    order id   ORD-<stage><index>-<8 hex>           e.g. ORD-m1f4-5d0c2a9b
    token      <PREFIX>-<order tail>-<16 hex>       e.g. ST-m1f4-5d0c2a9b-0a1b2c3d4e5f6071
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b

KEY_BYTES = 16
_MAC_BYTES = 8
_TAG_BYTES = 4
KEY_VARIABLE = "AGENTDYNO_PROOF_KEY"
# Public, so that a host and a load generator started by hand agree without any set-up. A run of the rig has its own.
DEVELOPMENT_KEY = b"agentdyno-public"


class Stage(StrEnum):
    """Which part of a run an arrival belongs to; its first letter is part of the order id."""

    WARMUP = "warmup"
    MEASURE = "measure"
    COOLDOWN = "cooldown"

    @property
    def letter(self) -> str:
        """One letter, unique among the stages."""
        return self.value[0]


ORDER_PATTERN = r"ORD-[wmc][0-9a-f]+-[0-9a-f]{8}"
TOKEN_PATTERN = r"(?:ST|PO|RE)-[wmc][0-9a-f]+-[0-9a-f]{8}-[0-9a-f]{16}"
_ORDER = re.compile(ORDER_PATTERN)
_TOKEN = re.compile(TOKEN_PATTERN)


@dataclass(frozen=True, slots=True)
class Step:
    """One tool of the scenario: its name and the prefix of the token it returns."""

    tool: str
    prefix: str


STEPS: tuple[Step, ...] = (
    Step("order_status", "ST"),
    Step("refund_policy", "PO"),
    Step("resolution", "RE"),
)
STEP_BY_TOOL: dict[str, Step] = {step.tool: step for step in STEPS}


class ProofError(ValueError):
    """A reference that no correct run of the tools could have produced; the text says which."""


def key_from_environment(environ: Mapping[str, str]) -> bytes:
    """The proof key that KEY_VARIABLE holds in hex, or DEVELOPMENT_KEY when it is unset or empty.

    Raises ProofError with a sentence (which never quotes the value) when it is not a key.
    """
    text = environ.get(KEY_VARIABLE, "")
    if not text:
        return DEVELOPMENT_KEY
    if not re.fullmatch(f"[0-9a-fA-F]{{{2 * KEY_BYTES}}}", text):
        raise ProofError(f"{KEY_VARIABLE} must be {2 * KEY_BYTES} hex digits; it has {len(text)} characters.")
    return bytes.fromhex(text)


def order_id(seed: int, stage: Stage, index: int) -> str:
    """The id of arrival `index` (counted from 0 within its stage); distinct for distinct arguments."""
    tag = blake2b(f"{seed}:{stage.letter}:{index}".encode(), digest_size=_TAG_BYTES).hexdigest()
    return f"ORD-{stage.letter}{index:x}-{tag}"


def order_of(reference: str) -> str:
    """The order id that a reference (an order id or any token) belongs to.

    Raises ProofError when the text has neither shape.
    """
    if _ORDER.fullmatch(reference):
        return reference
    if _TOKEN.fullmatch(reference):
        return "ORD-" + reference[3:-17]
    raise ProofError(f"{reference[:80]!r} is neither an order id nor a token")


def token(key: bytes, tool: str, reference: str) -> str:
    """The token that `tool` returns for `reference`: prefix, order tail, keyed BLAKE2b of both.

    Raises ProofError for an unknown tool or a malformed reference.
    """
    step = STEP_BY_TOOL.get(tool)
    if step is None:
        raise ProofError(f"there is no tool named {tool[:80]!r}")
    order = order_of(reference)
    mac = blake2b(f"{tool}|{reference}".encode(), key=key, digest_size=_MAC_BYTES).hexdigest()
    return f"{step.prefix}-{order[4:]}-{mac}"


def chain(key: bytes, order: str, *, parallel: bool = False) -> tuple[tuple[str, str, str], ...]:
    """What a correct run does for `order`: ((tool, reference, token), ...) in the order of STEPS.

    In a chain each reference is the token before; with `parallel` every tool takes the order id.
    """
    links: list[tuple[str, str, str]] = []
    reference = order
    for step in STEPS:
        made = token(key, step.tool, reference)
        links.append((step.tool, reference, made))
        if not parallel:
            reference = made
    return tuple(links)


def check_reference(key: bytes, tool: str, reference: str, *, parallel: bool = False) -> None:
    """Raises ProofError unless `reference` is just what `tool` must be called with."""
    order = order_of(reference)
    expected = {name: ref for name, ref, _ in chain(key, order, parallel=parallel)}
    if tool not in expected:
        raise ProofError(f"there is no tool named {tool[:80]!r}")
    if expected[tool] != reference:
        raise ProofError(f"{tool} was called with {reference!r}, which is not the reference that step needs")
