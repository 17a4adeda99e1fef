"""What the mock LLM tells a recorder of the calls it served: good ones, and those whose client went."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agentdyno.backends.mock_llm.http import Connections
from agentdyno.backends.mock_llm.service import Service as Llm
from agentdyno.contract.scenario import BackendTiming
from agentdyno.contract.trace import ACKNOWLEDGED, Goodbye, Hello, Record, ServedCall, Service
from agentdyno.emit.sender import Sender
from agentdyno.record.spans import decode
from tests.backends.mock_process import MODEL, ORDER, MockServer, RawClient, chat, get, post

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
SAMPLED = f"traceparent: 00-{TRACE}-{PARENT}-01\r\n"


class Ear:
    """Takes the frames of one sender."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    @property
    def served(self) -> list[ServedCall]:
        return [record for record in self.records if isinstance(record, ServedCall)]

    def close(self) -> None:
        self._listener.close()
        self._thread.join(10)

    def _listen(self) -> None:
        connection, _ = self._listener.accept()
        with connection, connection.makefile("rb") as frames:
            while head := frames.read(4):
                self.records += decode(frames.read(int.from_bytes(head, "big")))
                connection.sendall(ACKNOWLEDGED)


@pytest.fixture
def ear() -> Iterator[Ear]:
    made = Ear()
    yield made
    made.close()


def test_a_call_of_a_sampled_trace_is_told_and_others_are_not(start: Callable[..., MockServer], ear: Ear) -> None:
    server = start("--spans", ear.address, timing={"ttft_ms": "const:20", "tokens_per_s": "const:1000"})
    for headers in (SAMPLED, "", SAMPLED.replace("-01\r", "-00\r"), "traceparent: nonsense\r\n", SAMPLED):
        answer = server.ask(post(chat(ORDER), headers=headers))
        assert answer.status == 200
    assert server.metric("agentdyno_spans_recorded_total") == 2
    assert server.metric("agentdyno_spans_dropped_total") == 0
    assert server.stop() == (0, "")
    first, second = ear.served
    assert first.span_id != second.span_id
    for call in (first, second):
        assert (call.trace_id.hex(), f"{call.parent_span_id:016x}", call.status) == (TRACE, PARENT, 200)
        assert (call.prompt_tokens, call.completion_tokens) == (
            answer.json["usage"]["prompt_tokens"],
            answer.json["usage"]["completion_tokens"],
        )
        assert call.first_token_ns is not None
        assert call.first_token_ns - call.start_ns >= 20_000_000
        assert call.start_ns <= call.first_token_ns <= call.end_ns
    assert isinstance(ear.records[0], Hello)
    assert ear.records[0].service is Service.BACKEND
    assert ear.records[-1] == Goodbye(Service.BACKEND, 2, 0)


def test_a_client_that_goes_leaves_a_closed_span(start: Callable[..., MockServer], ear: Ear) -> None:
    server = start("--spans", ear.address, timing={"ttft_ms": "const:60000", "max_num_seqs": 1})
    seated, queued = server.client(), server.client()
    seated.send(post(chat(ORDER), headers=SAMPLED))
    server.wait_until(lambda: server.stats()["in_flight"] == 1)
    queued.send(post(chat(ORDER), headers=SAMPLED))
    server.wait_until(lambda: server.stats()["in_flight"] == 2)
    queued.close()
    seated.close()
    server.wait_until(lambda: server.stats()["cancelled"] == 2)
    assert server.stop() == (0, "")
    waited, worked = ear.served
    assert (waited.status, worked.status) == (499, 499)
    assert (waited.first_token_ns, worked.first_token_ns) == (None, None)
    assert (waited.completion_tokens, worked.completion_tokens) == (0, 0)
    # The one waited for a seat all the time, the other hardly.
    assert waited.queued_ns == waited.end_ns - waited.start_ns
    assert worked.queued_ns < worked.end_ns - worked.start_ns


def test_a_stream_that_breaks_off_says_how_far_it_came(start: Callable[..., MockServer], ear: Ear) -> None:
    server = start("--spans", ear.address, timing={"tokens_per_s": "const:10"})
    client = server.client()
    client.send(post(chat(ORDER, stream=True), headers=SAMPLED))
    client.socket.recv(1)
    client.close()
    server.wait_until(lambda: server.stats()["cancelled"] == 1)
    assert server.stop() == (0, "")
    (call,) = ear.served
    assert call.status == 499
    assert call.first_token_ns is not None
    assert call.completion_tokens >= 1


def test_a_prometheus_sees_what_was_thrown_away() -> None:
    def metrics(port: int) -> str:
        client = RawClient(port)
        for headers in (SAMPLED, SAMPLED, "", SAMPLED, SAMPLED, SAMPLED):
            client.send(post(chat(ORDER), headers=headers))
            assert client.read().status == 200
        client.send(get("/metrics"))
        text = client.read().body.decode()
        client.close()
        return text

    async def served() -> str:
        spans = Sender(("127.0.0.1", 1), Service.BACKEND, capacity=2)  # not started: nothing leaves
        llm = Llm(scenario="chain", seed=1, timing=BackendTiming(), model=MODEL, spans=spans)
        connections = Connections(llm.handle, llm.meter)
        async with await asyncio.get_running_loop().create_server(connections.connect, "127.0.0.1", 0) as server:
            return await asyncio.to_thread(metrics, server.sockets[0].getsockname()[1])

    families = {family.name: family for family in text_string_to_metric_families(asyncio.run(served()))}
    ledger = {name: families[f"agentdyno_spans_{name}"] for name in ("recorded", "dropped")}
    assert {name: [sample.value for sample in family.samples] for name, family in ledger.items()} == {
        "recorded": [5],
        "dropped": [3],
    }
    (other,) = families["vllm:prompt_tokens"].samples
    for family in ledger.values():
        assert (family.type, family.samples[0].labels) == ("counter", other.labels)
