"""The host's own count of the LLM's work against what the backend counted: they must agree to the unit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from agentdyno.analysis.run_data import Marks, Numbers, Requests, RunData
from agentdyno.contract.proof import Stage
from agentdyno.contract.run import BackendStage, Finding, Outcome, Reason
from agentdyno.contract.summary import Load


def other_counts(data: RunData, load: Load) -> Iterator[Finding]:
    """A finding for each count that differs, where every request was answered and the backend keeps a count."""
    requests, backend = data.requests, data.backend
    if requests is None or backend is None:
        return
    answered = requests.outcome(Outcome.OK)
    if backend.stats is not None and load.ok == load.arrivals:
        served = backend.stats.stages.get(Stage.MEASURE.letter, BackendStage())
        rows = requests.stage(Stage.MEASURE) & answered
        counts = {"llm_calls": served.calls}
        # The host's prompt bytes are of all calls it made, the backend's of those it answered well.
        retried = bool(_sum(requests, "retries", rows))
        if not retried:
            counts["prompt_bytes"] = served.prompt_bytes
        # A connection that a request gave up may carry the first call of another one, of whichever stage.
        if not retried and answered.all():
            yield from _connections(requests.numbers("connections")[rows], served)
        counts |= {"prompt_tokens": served.prompt_tokens, "completion_tokens": served.completion_tokens}
        yield from _differing(requests, rows, counts)
    if backend.counters is not None and answered.all() and not _sum(requests, "retries", answered):
        # Of the whole load: vLLM knows no stages.
        counters = backend.counters
        counts = {
            "llm_calls": counters.requests,
            "prompt_tokens": counters.prompt_tokens,
            "completion_tokens": counters.completion_tokens,
        }
        yield from _differing(requests, answered, counts)


def _connections(opened: Numbers, served: BackendStage) -> Iterator[Finding]:
    """Connections the host saw opened for its calls, against those whose first call the backend served."""
    if served.connections is None or np.isnan(opened).any():
        return
    if opened.sum() != served.connections:
        text = (
            f"The host counted {opened.sum():.0f} connections opened to the LLM; the backend served the first call of "
            f"{served.connections}."
        )
        yield Finding(Reason.WORK_DIFFERS, text)


def _differing(requests: Requests, rows: Marks, counts: Mapping[str, int]) -> Iterator[Finding]:
    for column, count in counts.items():
        counted = _sum(requests, column, rows)
        if counted is not None and counted != count:
            text = f"The host counted {counted:.0f} {column.replace('_', ' ')}; the backend served {count}."
            yield Finding(Reason.WORK_DIFFERS, text)


def _sum(requests: Requests, column: str, rows: Marks) -> float | None:
    """None where the host could not count it."""
    values = requests.numbers(column)[rows]
    return None if np.isnan(values).all() else float(np.nansum(values))
