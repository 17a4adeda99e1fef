"""How many spans of a framework's own instrumentation ended, and how many the recorder took.

Imported by name, by `native` alone, once OpenTelemetry's SDK is on the import path.
"""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExportResult


class Ended(SpanProcessor):
    """Counts the spans that end and are to be exported."""

    def __init__(self) -> None:
        self.count = 0

    def on_end(self, span: ReadableSpan) -> None:
        """One more, unless it is of a request that is not traced."""
        self.count += span.context is not None and span.context.trace_flags.sampled


class Exporter(OTLPSpanExporter):
    """OpenTelemetry's own, counting what the endpoint took."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(endpoint=endpoint)
        self.count = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """All of them or none."""
        result = super().export(spans)
        if result is SpanExportResult.SUCCESS:
            self.count += len(spans)
        return result
