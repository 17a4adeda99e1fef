"""An adapter that is put to the test: its real host, a mock LLM and a recorder, and how to ask it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.error import HTTPError

import msgspec

from agentdyno.contract.adapter import AdapterFolder, Variant
from agentdyno.contract.invoke import INVOKE_PATH, InvokeRequest, InvokeResponse, Usage
from agentdyno.contract.proof import KEY_BYTES, Stage, order_id
from agentdyno.contract.run import BackendStage, BackendStats, Outcome
from agentdyno.contract.scenario import SCENARIOS, BackendTiming, Workload
from agentdyno.load.verify import judge
from agentdyno.record.folder import RunFolder
from agentdyno.record.spans import Span, SpanKind
from agentdyno.rig.backends import Backend, start_backend
from agentdyno.rig.conformance.trace_shape import of_kind, wait_for_trace
from agentdyno.rig.options import BenchOptions, Words, read
from agentdyno.rig.processes import Children, body_of, fetch
from agentdyno.rig.servers import Host, start_host, start_recorder

KEY = bytes(range(KEY_BYTES))
TIMEOUT_MS = 20_000
WAIT_S = 30.0
_SPANS_WITHIN_S = 5.0
_STOP_WITHIN_S = 12.0


class NotConforming(AssertionError):
    """What the adapter does wrong, and what to look at."""


@dataclass(frozen=True, slots=True)
class Traced:
    """What came of one traced request. usage: None when it was not answered."""

    status: int
    usage: Usage | None
    parent_span_id: str
    spans: list[Span]


@dataclass(frozen=True, slots=True)
class Subject:
    """The adapter's running host and mock, for one scenario and timing, and what they tell the recorder.

    raw: the folder of the recorder's files.
    """

    options: BenchOptions
    variant: Variant
    host: Host
    backend: Backend
    raw: Path

    def request(self, index: int, *, timeout_ms: int = TIMEOUT_MS, stream: bool = False) -> InvokeRequest:
        """The request of measured arrival `index`."""
        plan = self.options.plan
        return SCENARIOS[plan.scenario].request(plan.seed, Stage.MEASURE, index, timeout_ms, stream=stream)

    def post(self, request: InvokeRequest, headers: Mapping[str, str] | None = None) -> tuple[int, bytes]:
        """Status and body. headers: more of them."""
        try:
            sent = msgspec.json.encode(request)
            return 200, fetch(self.host.url + INVOKE_PATH, WAIT_S, method="POST", body=sent, headers=headers)
        except HTTPError as error:
            return error.code, body_of(error)

    def verified(self, index: int) -> InvokeResponse:
        """Ask once; raises NotConforming unless the answer proves the work."""
        status, body = self.post(self.request(index))
        plan = self.options.plan
        order = order_id(plan.seed, Stage.MEASURE, index)
        judged = judge(status, body, order, KEY, SCENARIOS[plan.scenario])
        if judged.outcome is not Outcome.OK:
            raise NotConforming(f"Request {index}: {judged.reason}. Status {status}, body {body[:400]!r}.")
        return msgspec.json.decode(body, type=InvokeResponse)

    def traced(self, request: InvokeRequest) -> Traced:
        """Ask as a caller with a span of its own, and wait for the spans that come of it."""
        trace_id, parent = secrets.token_hex(16), secrets.token_hex(8)
        status, body = self.post(request, {"traceparent": f"00-{trace_id}-{parent}-01"})
        usage = _usage(status, body, request.stream)
        expected = 0 if usage is None else 1 + 2 * usage.llm_calls + usage.retries + usage.tool_calls

        def enough(spans: list[Span]) -> bool:
            own = of_kind(spans, SpanKind.REQUEST, SpanKind.CHAT, SpanKind.TOOL, SpanKind.SERVED)
            return bool(of_kind(spans, SpanKind.REQUEST)) and len(own) >= expected

        return Traced(status, usage, parent, wait_for_trace(self.raw, trace_id, enough, _SPANS_WITHIN_S))

    def served(self) -> BackendStage:
        """What the mock has served for measured orders so far."""
        stats = self.backend_stats()
        return stats.stages.get(Stage.MEASURE.letter, BackendStage())

    def backend_stats(self) -> BackendStats:
        """The mock's `/stats`."""
        stats = self.backend.record().stats
        if stats is None:
            raise NotConforming("The mock LLM keeps no stats.")
        return stats


@contextmanager
def running(
    adapter: AdapterFolder, variant: Variant, scenario: str, timing: BackendTiming, folder: RunFolder
) -> Iterator[Subject]:
    """The adapter's host, offline, with a mock and a recorder of its own. Raises ChildFailed."""
    options = read(Words(framework=variant.name, scenario=scenario))
    options = replace(options, workload=Workload(scenario=scenario, seed=options.plan.seed, timing=timing))
    children = Children()
    try:
        recorder = start_recorder(folder, {}, None, children)
        backend = start_backend(options, None, folder.log("backend"), children, spans=recorder.address)
        host = start_host(
            adapter,
            variant,
            options,
            backend_url=backend.url,
            key=KEY,
            cores=None,
            log=folder.log("host"),
            children=children,
            offline=True,
            spans=recorder.address,
        )
        yield Subject(options, variant, host, backend, folder.raw)
    finally:
        children.stop(_STOP_WITHIN_S)


def _usage(status: int, body: bytes, streamed: bool) -> Usage | None:
    if status != 200:
        return None
    if streamed:
        final = [data for kind, data in map(read_event, filter(None, body.decode().split("\n\n"))) if kind == "final"]
        return msgspec.convert(final[0], InvokeResponse).usage if final else None
    return msgspec.json.decode(body, type=InvokeResponse).usage


def read_event(block: str) -> tuple[str, dict[str, str]]:
    """A server-sent event as its name and data."""
    kind, _, data = block.partition("\n")
    return kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))
