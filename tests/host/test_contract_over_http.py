"""Every endpoint of the contract over a real socket: methods, statuses, headers and the shape of each problem."""

import asyncio
import gc
import json

import aiohttp
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentdyno import __version__
from agentdyno.contract.invoke import InvokeRequest, InvokeResponse
from agentdyno.contract.proof import STEPS
from agentdyno.host import app
from agentdyno.host.app import MAX_BODY_BYTES
from agentdyno.host.probes import ProbeReport
from tests.host.adapters import LINKS, Changing, Plain, Streaming
from tests.host.serving import Exchange, counts, make_host, request_body, serving

TOOLS = ", ".join(step.tool for step in STEPS)


async def test_a_finished_request():
    adapter = Plain()
    adapter.work = adapter.work_the_chain
    async with serving(adapter) as served:
        answer = await served.invoke(tools=["order_status"], history=[{"role": "user", "content": "hi"}])
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json() == {
        "session_id": "s-1",
        "output": f"done: {LINKS[-1][2]}",
        "tool_calls": [
            {"name": name, "arguments": {"reference": reference}, "error": None, "result": call["result"]}
            for (name, reference, _), call in zip(LINKS, answer.json()["tool_calls"], strict=True)
        ],
        "usage": {
            "llm_calls": 0,
            "tool_calls": 3,
            "prompt_bytes": 0,
            "prompt_tokens": 0,
            "completion_tokens": 0,
            "retries": 0,
            "connections": 0,
        },
    }
    for (_, _, made), call in zip(LINKS, answer.json()["tool_calls"], strict=True):
        assert json.loads(call["result"])["reference"] == made
    assert msgspec.json.decode(answer.body, type=InvokeResponse).session_id == "s-1"


async def test_the_adapter_is_started_with_what_the_host_has_and_gets_the_request_as_sent():
    seen: list[InvokeRequest] = []

    async def work(request: InvokeRequest) -> str:
        seen.append(request)
        return "ok"

    adapter = Plain(work)
    async with serving(adapter) as served:
        assert not adapter.closed
        await served.invoke(input="né?", timeout_ms=777, tools=["resolution"])
    assert adapter.closed
    assert adapter.started is not None
    llm, tools, prompt = adapter.started
    assert (llm.model, tools, prompt) == ("m-1", [step.tool for step in STEPS], "Be kind.")
    assert seen == [InvokeRequest("s-1", "né?", (), ("resolution",), 777, False)]


async def test_a_traceparent_is_continued():
    async with serving(Plain()) as served:
        await served.ask("POST", "/agent/invoke", request_body(), (f"TraceParent: 00-{'ab' * 16}-{'cd' * 8}-00",))
        await served.invoke()
    (continued, _), (fresh, _) = served.traces
    assert (continued.trace_id, continued.parent_span_id, continued.sampled) == (
        *(int("ab" * 16, 16), int("cd" * 8, 16)),
        False,
    )
    assert (fresh.parent_span_id, fresh.sampled) == (None, True)


BAD_BODIES = {
    "nothing": b"",
    "not JSON": b"{",
    "not UTF-8": b"\xff\xfe",
    "a broken string": b'{"session_id": "\xff", "input": "x"}',
    "an array": b"[]",
    "no session": b'{"input": "x"}',
    "no input": b'{"session_id": "x"}',
    "a number for the input": request_body(input=5),
    "null for the session": request_body(session_id=None),
    "a string for the history": request_body(history="x"),
    "a turn without content": request_body(history=[{"role": "user"}]),
    "a number among the tools": request_body(tools=[1]),
    "a string for the time-out": request_body(timeout_ms="1"),
    "a fraction for the time-out": request_body(timeout_ms=1.5),
    "a number for stream": request_body(stream=1),
    "nested without end": b'{"session_id": "x", "input": "y", "z": ' + b"[" * 100_000,
}


@pytest.mark.parametrize("kind", BAD_BODIES)
async def test_a_bad_body_is_a_400(kind):
    async with serving(Plain()) as served:
        answer = await served.ask("POST", "/agent/invoke", BAD_BODIES[kind])
        assert answer.problem() == (400, "bad_body")
        assert answer.json()["detail"].startswith("The body is not a valid invoke request: ")
        assert counts(served.host) == {"bad_request": 1, "in_flight": 0}
        assert (await served.invoke()).status == 200


@given(st.binary(max_size=200))
def test_no_bytes_are_more_than_a_400(body):
    async def run() -> None:
        exchange = Exchange(make_host(Plain()))
        exchange.give(body)
        assert (await exchange.answer()).problem() == (400, "bad_body")

    asyncio.run(run())


async def test_an_unknown_field_is_ignored():
    async with serving(Plain()) as served:
        assert (await served.invoke(metadata={"x": [1]})).status == 200


@pytest.mark.parametrize(
    "timeout_ms",
    [0, -1, -(10**30), 86_400_001, 10**30, 10**400],
    ids=lambda it: f"{it:.3g}" if abs(it) < 10**9 else f"{len(str(it))} digits",
)
async def test_a_time_out_that_is_none_is_a_400(timeout_ms):
    async with serving(Plain()) as served:
        answer = await served.ask("POST", "/agent/invoke", request_body()[:-1] + b', "timeout_ms": %d}' % timeout_ms)
        assert answer.problem() == (400, "bad_timeout")
        assert answer.json()["detail"] == "timeout_ms must be above 0 and at most 86400000 (a day)."
        assert counts(served.host) == {"bad_request": 1, "in_flight": 0}


async def test_the_shortest_and_the_longest_time_out_are_taken():
    async with serving(Plain()) as served:
        assert (await served.invoke(timeout_ms=86_400_000)).status == 200
        assert (await served.invoke(timeout_ms=1)).status in (200, 504)


async def test_an_unknown_tool_is_a_400_that_names_those_there_are():
    async with serving(Plain()) as served:
        answer = await served.invoke(tools=["order_status", "teleport"])
    assert answer.problem() == (400, "unknown_tool")
    assert answer.json()["detail"] == f"There is no tool named 'teleport'; there are {TOOLS}."


async def test_streaming_from_an_adapter_that_cannot_is_a_501():
    async with serving(Plain()) as served:
        answer = await served.invoke(stream=True)
    assert answer.problem() == (501, "no_stream")


def body_of(size: int) -> bytes:
    frame = len(request_body(input=""))
    return request_body(input="x" * (size - frame))


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_of_just_the_limit_is_taken_and_one_byte_more_is_a_413(chunked):
    async def whole_in_pieces(body: bytes):
        for start in range(0, len(body), 100_000):
            yield body[start : start + 100_000]

    async with serving(Plain()) as served, aiohttp.ClientSession() as session:
        for size, status in ((MAX_BODY_BYTES, 200), (MAX_BODY_BYTES + 1, 413), (3 * MAX_BODY_BYTES, 413)):
            body = body_of(size)
            assert len(body) == size
            data = whole_in_pieces(body) if chunked else body
            url = f"http://127.0.0.1:{served.port}/agent/invoke"
            async with session.post(url, data=data) as response:
                assert response.status == status
                if status == 413:
                    assert response.content_type == "application/problem+json"
                    assert (await response.json(content_type=None))["code"] == "too_large"
        assert counts(served.host) == {"ok": 1, "bad_request": 2, "in_flight": 0}


async def test_a_413_does_not_wait_for_the_rest_of_the_body():
    exchange = Exchange(make_host(Plain()))
    for _ in range(9):
        exchange.give(b"x" * (MAX_BODY_BYTES // 8), more=True)
    assert (await exchange.answer()).problem() == (413, "too_large")


async def test_a_body_that_does_not_arrive_is_a_408_and_holds_no_place(monkeypatch):
    monkeypatch.setattr(app, "_BODY_S", 0.01)
    host = make_host(Plain())
    exchange = Exchange(host)
    exchange.give(b'{"session', more=True)
    assert (await exchange.answer()).problem() == (408, "slow_body")
    assert counts(host) == {"bad_request": 1, "in_flight": 0}


async def test_a_client_that_leaves_within_its_body_is_not_taken_at_its_word():
    called = []
    host = make_host(Plain(lambda request: called.append(request)))
    exchange = Exchange(host)
    exchange.give(request_body(), more=True)
    exchange.hang_up()
    await exchange.task
    assert exchange.sent == []
    assert called == []
    assert counts(host) == {"client_gone": 1, "in_flight": 0}


async def test_healthz():
    async with serving(Plain()) as served:
        answer = await served.ask("GET", "/healthz")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json() == {"status": "ready", "framework": "bare", "agentdyno": __version__}


async def test_healthz_of_a_draining_host_is_a_503():
    host = make_host(Plain())
    messages = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    sent = []

    async def receive():
        return messages.pop(0)

    async def send(message):
        sent.append(message["type"])

    await host({"type": "lifespan"}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert (await Exchange(host, path="/healthz", method="GET").answer()).problem() == (503, "draining")


async def test_metrics_and_probes():
    async with serving(Plain()) as served:
        await served.invoke()
        gc.collect()
        metrics = await served.ask("GET", "/metrics")
        probes = await served.ask("GET", "/debug/probes")
    assert metrics.status == 200
    assert metrics.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert b'agentdyno_requests_total{framework="bare",outcome="ok"} 1.0\n' in metrics.body
    assert (probes.status, probes.headers["content-type"]) == (200, "application/json")
    assert msgspec.json.decode(probes.body, type=ProbeReport).gc


async def test_a_timed_host_carries_no_heap_profiler():
    async with serving(Plain()) as served:
        assert (await served.ask("GET", "/debug/pprof/heap")).problem() == (501, "not_profiling")


@pytest.mark.parametrize("path", ["/healthz", "/metrics"])
async def test_head_is_get_without_the_body(path):
    async with serving(Plain()) as served:
        head = await served.ask("HEAD", path, bodiless=True)  # fails if a body follows
        get = await served.ask("GET", path)
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-type"] == get.headers["content-type"]
    if path == "/healthz":
        assert head.headers["content-length"] == get.headers["content-length"]


ALLOWED = {
    "/agent/invoke": "POST",
    "/healthz": "GET, HEAD",
    "/metrics": "GET, HEAD",
    "/debug/probes": "GET",
    "/debug/pprof/heap": "GET",
    "/agent/sessions/s-1": "DELETE",
    "/agent/tools/order_status": "PUT, DELETE",
}


@pytest.mark.parametrize("path", ALLOWED)
async def test_other_methods_are_a_405_with_allow(path):
    async with serving(Changing()) as served:
        for method in {"GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"} - set(ALLOWED[path].split(", ")):
            answer = await served.ask(method, path, b"")
            assert answer.problem() == (405, "method")
            assert answer.headers["allow"] == ALLOWED[path]
        assert "POST" in ALLOWED[path] or served.host.adapter.changes == []


@pytest.mark.parametrize("path", ["/", "/agent", "/agent/invoke/", "/agent/tools", "/healthz/x", "/" + "x" * 3000])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_anything_else_is_a_404(path, method):
    async with serving(Changing()) as served:
        answer = await served.ask(method, path, b"")
    assert answer.problem() == (404, "not_found")
    assert len(answer.json()["detail"]) < 300


async def test_ending_a_session_is_a_204_for_any_adapter():
    changing = Changing()
    async with serving(changing) as served:
        for session in ("s-1", "never seen"):
            answer = await served.ask("DELETE", f"/agent/sessions/{session.replace(' ', '%20')}")
            assert (answer.status, answer.body) == (204, b"")
            assert "content-length" not in answer.headers
            assert "transfer-encoding" not in answer.headers
    assert changing.changes == [("end", "s-1"), ("end", "never seen")]
    async with serving(Plain()) as served:
        assert (await served.ask("DELETE", "/agent/sessions/s-1")).status == 204


async def test_a_connection_stays_in_step_after_a_204():
    async with serving(Changing()) as served:
        connection = await served.connect()
        for _ in range(2):
            connection.send("DELETE", "/agent/sessions/s-1")
            assert (await connection.answer()).status == 204
            connection.send("GET", "/healthz")
            assert (await connection.answer()).status == 200


async def test_an_adapters_fault_in_a_side_endpoint_is_a_500():
    async with serving(Changing()) as served:
        answer = await served.ask("DELETE", "/agent/sessions/broken")
        assert answer.problem() == (500, "adapter_error")
        assert answer.json()["detail"] == "LookupError: the session store is gone"
        assert (await served.ask("GET", "/healthz")).status == 200


async def test_tools_come_and_go():
    changing = Changing()
    async with serving(changing) as served:
        for method in ("DELETE", "PUT", "PUT"):
            assert (await served.ask(method, "/agent/tools/refund_policy", b"")).status == 204
        answer = await served.ask("PUT", "/agent/tools/teleport", b"{}")
        assert answer.problem() == (404, "unknown_tool")
        assert answer.json()["detail"] == f"There is no tool named 'teleport'; there are {TOOLS}."
    assert changing.changes == [("remove", "refund_policy"), ("add", "refund_policy"), ("add", "refund_policy")]


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
async def test_changing_the_tools_of_an_adapter_that_cannot_is_a_501(method):
    async with serving(Plain()) as served:
        assert (await served.ask(method, "/agent/tools/refund_policy")).problem() == (501, "no_dynamic_tools")


async def test_ten_thousand_sessions_leave_the_number_of_series_as_it_was():
    host = make_host(Streaming(lambda _: nothing()))

    async def one(number: int) -> None:
        exchange = Exchange(host)
        exchange.give(request_body(session_id=f"session-{number}", stream=number % 2 == 0))
        assert (await exchange.answer()).status == 200

    await one(0)
    await one(1)
    before = series(host)
    for number in range(2, 10_000):
        await one(number)
    assert series(host) == before
    assert counts(host)["ok"] == 10_000


async def nothing():
    for _ in ():
        yield ""


def series(host) -> set[str]:
    lines = host.metrics.render()[0].decode().splitlines()
    return {line.rsplit(" ", 1)[0] for line in lines if not line.startswith("#")}
