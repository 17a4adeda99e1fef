"""Where a call's time went within vLLM, by its own spans in the traces of the run."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from agentdyno.analysis.run_data import RunData
from agentdyno.contract.run import Outcome
from agentdyno.record.spans import SpanKind

ATTRIBUTES = {
    "queue": "gen_ai.latency.time_in_queue",
    "prefill": "gen_ai.latency.time_in_model_prefill",
    "first_token": "gen_ai.latency.time_to_first_token",
    "decode": "gen_ai.latency.time_in_model_decode",
    "end_to_end": "gen_ai.latency.e2e",
}
"""vLLM's attributes, in seconds, by the names that figures have."""


def backend_times(data: RunData) -> dict[str, float | None]:
    """Means over the calls that vLLM served in the measured stage's traced and verified requests, ms.

    first_token: since the request came in, so with the queue. None where no span says it; empty for another backend.
    """
    if data.spans is None or data.requests is None or data.backend is None or data.backend.counters is None:
        return {}
    wanted = pa.array(data.requests.trace_ids(Outcome.OK), pa.string())
    # Attributes are not kept in memory for other figures.
    columns, served = ["kind", "trace_id", "attributes"], pc.field("kind") == SpanKind.SERVED.value
    spans = pq.read_table(data.path / "spans.parquet", columns=columns, filters=served)
    spans = spans.filter(pc.is_in(spans["trace_id"], wanted))
    said = [json.loads(text) for text in spans["attributes"].to_pylist()]
    times: dict[str, float | None] = {}
    for name, attribute in ATTRIBUTES.items():
        known = [float(one[attribute]) * 1000 for one in said if one.get(attribute) is not None]
        times[name] = sum(known) / len(known) if known else None
    return times


def in_words(times_ms: dict[str, float | None]) -> str:
    """One line for a person; empty where nothing is known."""
    known = [f"{name.replace('_', ' ')} {time:.1f} ms" for name, time in times_ms.items() if time is not None]
    return f"Within vLLM, mean of a call: {', '.join(known)}." if known else ""
