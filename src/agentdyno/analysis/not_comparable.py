"""Runs that are compared with nothing, however valid: the manifest says so before they begin."""

from __future__ import annotations

from collections.abc import Iterator

from agentdyno.contract.run import Finding, Reason
from agentdyno.record.manifest import Manifest

NOT_COMPARABLE = frozenset({Reason.PROFILED, Reason.NATIVE_SPANS, Reason.PROTOCOL_ONLY})
_PROTOCOL_BACKEND = "vllm-cpu"
_PROTOCOL_TEXT = (
    "A real vLLM served a model of 1 MB on the rig's own cores: requests, streams, tools, tokens and traces are real, "
    "the times are those of no LLM. Such a run is compared with nothing."
)


def not_comparable(manifest: Manifest) -> Iterator[Finding]:
    """Why its figures are not a framework's own."""
    if manifest.heap_profile is not None:
        text = "The heap profiler was in the process: times, CPU and memory are not the framework's own."
        yield Finding(Reason.PROFILED, text)
    if manifest.native_spans is not None:
        text = "Not for comparison: the framework's own instrumentation was in the process, so nothing in it is timed."
        yield Finding(Reason.NATIVE_SPANS, text)
    if manifest.backend.get("kind") == _PROTOCOL_BACKEND:
        yield Finding(Reason.PROTOCOL_ONLY, _PROTOCOL_TEXT)
