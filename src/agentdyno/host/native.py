"""The framework's own instrumentation, in a host that is asked for it: its spans go to the run's recorder by OTLP.

Only `python -m agentdyno.host --native-spans URL` imports this module; a timed process never does, and carries neither
OpenTelemetry's SDK nor an instrumentation. These stand at the end of the import path, from an environment of their own,
so that the framework is the very one that is measured.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentdyno.host.trace import RequestTrace

SERVICE_NAME = "agentdyno-framework"
_QUEUED_SPANS = 8192
_BATCH_SPANS = 64  # spans of a framework carry whole conversations; the recorder takes 4 MiB at once
_DELAY_MS = 500
_FLUSH_MS = 1500  # the host may not stay longer than two seconds after its last answer


class NativeSpansMissing(RuntimeError):
    """The instrumentation cannot be loaded, or refuses what is installed; the text says why."""


class NativeSpans:
    """A tracer provider for the whole process, which exports to an OTLP endpoint, and the instrumentors put to it.

    site_packages: where the instrumentation's distributions are. otlp_url: where spans go. instrumentors: classes as
    `module:Class` with OpenTelemetry's `instrument` method; none for a framework that makes spans by itself. Raises
    NativeSpansMissing.
    """

    def __init__(self, site_packages: Path, otlp_url: str, instrumentors: Sequence[str]) -> None:
        sys.path.append(str(site_packages.absolute()))
        try:
            # By name: only such a host has them, and no base environment holds them.
            sdk = importlib.import_module("opentelemetry.sdk.trace")
            export = importlib.import_module("opentelemetry.sdk.trace.export")
            resources = importlib.import_module("opentelemetry.sdk.resources")
            ledger = importlib.import_module("agentdyno.host.native_ledger")
            self._api: Any = importlib.import_module("opentelemetry.trace")
            self._context: Any = importlib.import_module("opentelemetry.context")
        except ImportError as error:
            text = f"the framework's instrumentation cannot be loaded from {site_packages}: {error}"
            raise NativeSpansMissing(text) from error
        self._ended, self._exporter = ledger.Ended(), ledger.Exporter(otlp_url)
        self._provider: Any = sdk.TracerProvider(resource=resources.Resource({"service.name": SERVICE_NAME}))
        self._provider.add_span_processor(self._ended)
        self._provider.add_span_processor(
            export.BatchSpanProcessor(
                self._exporter,
                max_queue_size=_QUEUED_SPANS,
                max_export_batch_size=_BATCH_SPANS,
                schedule_delay_millis=_DELAY_MS,
            )
        )
        self._api.set_tracer_provider(self._provider)
        for entry in instrumentors:
            self._instrument(entry)

    def _instrument(self, entry: str) -> None:
        module, _, name = entry.partition(":")
        try:
            instrumentor = getattr(importlib.import_module(module), name)()
            instrumentor.instrument(tracer_provider=self._provider)
        except Exception as error:
            raise NativeSpansMissing(f"the instrumentor {entry} failed: {type(error).__name__}: {error}") from error
        # It only logs it when the framework's version is none of those it is for.
        if not instrumentor.is_instrumented_by_opentelemetry:
            raise NativeSpansMissing(f"the instrumentor {entry} did not take to what is installed; the log says why")

    def enter(self, trace: RequestTrace) -> None:
        """In the current context, make the request's span the parent of whatever spans the framework begins."""
        flags = self._api.TraceFlags(self._api.TraceFlags.SAMPLED if trace.sampled else self._api.TraceFlags.DEFAULT)
        parent = self._api.SpanContext(trace.trace_id, trace.span_id, is_remote=True, trace_flags=flags)
        self._context.attach(self._api.set_span_in_context(self._api.NonRecordingSpan(parent)))

    def close(self) -> None:
        """Hand over what is still queued, for a second and a half at most; the log says how many were lost."""
        self._provider.force_flush(_FLUSH_MS)
        ended, taken = self._ended.count, self._exporter.count
        sys.stderr.write(f"Of {ended} spans of the framework's own {taken} were exported and {ended - taken} lost.\n")
