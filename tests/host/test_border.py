"""The border to the LLM, with each real client library against a real socket."""

import asyncio
import gzip
import json
import socket
import zlib

import aiohttp
import httpx
import httpx2
import pytest

from agentdyno.contract.trace import LlmCall
from agentdyno.host import border
from agentdyno.host.trace import RequestOver, RequestTrace, now_ns, open_trace
from tests.host.clients import LIBRARIES, Client
from tests.host.context import in_request
from tests.host.fake_llm import Asked, FakeLlm, Reply, events, whole

pytestmark = pytest.mark.usefixtures("unwrapped")

SSE = "text/event-stream; charset=utf-8"
BODIES = {
    "whole, tools": (whole(tools=True), "application/json", True),
    "whole, answer": (whole(tools=False), "application/json", False),
    "events, tools": (events(tools=True), SSE, True),
    "events, answer": (events(tools=False, newline="\r\n"), SSE, False),
}


def only_call(trace: RequestTrace) -> LlmCall:
    (call,) = trace.llm_calls
    return call


def assert_read(call: LlmCall, *, wants_tools: bool, streamed: bool) -> None:
    assert (call.status, call.error, call.ok) == (200, None, True)
    assert (call.wants_tools, call.streamed) == (wants_tools, streamed)
    assert (call.prompt_tokens, call.completion_tokens, call.model) == (11, 7, "m-1")
    assert call.first_byte_ns is not None
    assert call.end_ns is not None
    assert call.start_ns <= call.first_byte_ns <= call.end_ns


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kind", BODIES)
async def test_a_body_cut_at_every_byte_border_is_read_all_the_same(library, kind):
    body, content_type, wants_tools = BODIES[kind]
    async with FakeLlm() as llm, Client.of(library) as client:
        border.install(llm.base_url)
        for cut in range(1, len(body)):
            gate = asyncio.Event()
            llm.reply = Reply([body[:cut], body[cut:]], content_type=content_type, gate=gate)
            trace = open_trace(None)
            seen, first_seen_ns = await in_request(trace, read_gated(client, llm.url, gate))
            assert seen == body
            call = only_call(trace)
            assert_read(call, wants_tools=wants_tools, streamed=content_type is SSE)
            assert call.prompt_bytes == 2
            # The second piece left the LLM only after this instant.
            assert call.first_byte_ns <= first_seen_ns <= call.end_ns


async def read_gated(client: Client, url: str, gate: asyncio.Event) -> tuple[bytes, int]:
    seen, first_seen_ns = b"", 0
    async with client.pieces(url) as pieces:
        async for piece in pieces:
            seen += piece
            if not gate.is_set():
                first_seen_ns = now_ns()
                gate.set()
    return seen, first_seen_ns


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("chunked", [False, True])
async def test_an_answer_read_at_once(library, kind, chunked):
    body, content_type, wants_tools = BODIES[kind]
    reply = Reply([body[:50], body[50:]], content_type=content_type, chunked=chunked)
    async with FakeLlm(reply) as llm, Client.of(library) as client:
        border.install(llm.base_url)
        trace = open_trace(None)
        assert await in_request(trace, client.post(llm.url, b"x" * 1234)) == (200, body)
    assert_read(only_call(trace), wants_tools=wants_tools, streamed=content_type is SSE)
    assert trace.usage().prompt_bytes == 1234
    assert (trace.usage().llm_calls, trace.usage().retries) == (1, 0)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
async def test_a_compressed_answer_is_read(library, kind, encoding, pack):
    body, content_type, wants_tools = BODIES[kind]
    async with FakeLlm() as llm, Client.of(library) as client:
        border.install(llm.base_url)
        llm.reply = Reply([pack(body)], content_type=content_type, encoding=encoding)
        trace = open_trace(None)
        assert await in_request(trace, client.post(llm.url)) == (200, body)
    assert_read(only_call(trace), wants_tools=wants_tools, streamed=content_type is SSE)


@pytest.mark.parametrize("library", ["httpx", "httpx2"])
async def test_a_gzip_body_cut_at_every_byte_border(library):
    body = events(tools=True)
    packed = gzip.compress(body)
    async with FakeLlm() as llm, Client.of(library) as client:
        border.install(llm.base_url)
        for cut in range(1, len(packed)):
            gate = asyncio.Event()
            llm.reply = Reply([packed[:cut], packed[cut:]], content_type=SSE, encoding="gzip", gate=gate)
            trace = open_trace(None)
            seen, _ = await in_request(trace, read_gated(client, llm.url, gate))
            assert seen == packed
            assert_read(only_call(trace), wants_tools=True, streamed=True)


@pytest.mark.parametrize("library", ["httpx", "httpx2"])
async def test_an_encoding_that_the_border_cannot_read_is_no_fault_of_the_call(library):
    reply = Reply([b"\x8b\x03\x80"], encoding="zstd")
    async with FakeLlm(reply) as llm, Client.of(library) as client:
        border.install(llm.base_url)
        trace = open_trace(None)
        await in_request(trace, drain(client, llm.url))
    call = only_call(trace)
    assert (call.ok, call.error, call.wants_tools, call.prompt_tokens) == (True, None, None, None)
    assert trace.usage().prompt_tokens is None


async def drain(client: Client, url: str) -> None:
    async with client.pieces(url) as pieces:
        async for _ in pieces:
            pass


@pytest.mark.parametrize("library", LIBRARIES)
async def test_an_answer_that_lies_about_its_encoding_is_unreadable(library):
    async with FakeLlm(Reply([b"not gzip at all"], encoding="gzip")) as llm, Client.of(library) as client:
        border.install(llm.base_url)
        trace = open_trace(None)
        with pytest.raises(Exception, match=r"(?i)deco"):
            await in_request(trace, client.post(llm.url))
        trace.finish()
    assert not only_call(trace).ok


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    "garbage", [b"", b"<html>", b'{"choices": 3}', b'{"choices": [', b'{"model": "\xff"}', b'{"x":' + b"[" * 100_000]
)
async def test_a_200_that_is_no_completion_is_not_a_good_call(library, garbage):
    async with FakeLlm(Reply([garbage])) as llm, Client.of(library) as client:
        border.install(llm.base_url)
        trace = open_trace(None)
        assert await in_request(trace, client.post(llm.url)) == (200, garbage)
    call = only_call(trace)
    assert call.error is not None
    assert call.error.startswith("unreadable answer: ")
    assert call.end_ns is not None
    assert (trace.usage().llm_calls, trace.usage().retries) == (0, 1)


@pytest.mark.parametrize("library", LIBRARIES)
async def test_usage_that_is_not_reported_stays_unknown(library):
    async with FakeLlm() as llm, Client.of(library) as client:
        border.install(llm.base_url)
        for body, content_type in ((whole(tools=False, usage=False), "application/json"),
                                   (events(tools=False, usage=False), SSE)):  # fmt: skip
            llm.reply = Reply([body], content_type=content_type)
            trace = open_trace(None)
            await in_request(trace, client.post(llm.url))
            call = only_call(trace)
            assert (call.ok, call.wants_tools, call.model) == (True, False, "m-1")
            assert (call.prompt_tokens, call.completion_tokens) == (None, None)


@pytest.mark.parametrize("library", LIBRARIES)
async def test_error_statuses_are_retries(library):
    statuses = iter((503, 429, 500, 200))
    reply = lambda _: Reply([whole(tools=False)], status=next(statuses))  # noqa: E731
    async with FakeLlm(reply) as llm, Client.of(library) as client:
        border.install(llm.base_url)
        trace = open_trace(None)
        for _ in range(4):
            await in_request(trace, client.post(llm.url, b"12345"))
    assert [call.status for call in trace.llm_calls] == [503, 429, 500, 200]
    assert [call.ok for call in trace.llm_calls] == [False, False, False, True]
    assert all(call.end_ns is not None and call.error is None for call in trace.llm_calls)
    usage = trace.usage()
    assert (usage.llm_calls, usage.retries, usage.prompt_bytes, usage.prompt_tokens) == (1, 3, 20, 11)


@pytest.mark.parametrize("library", LIBRARIES)
async def test_a_refused_connection_is_a_retry_with_its_size(library):
    with socket.socket() as placeholder:
        placeholder.bind(("127.0.0.1", 0))  # bound and not listening: refused
        url = f"http://127.0.0.1:{placeholder.getsockname()[1]}/v1"
        border.install(url)
        trace = open_trace(None)
        async with Client.of(library) as client:
            with pytest.raises(Exception, match=r"(?i)connect"):
                await in_request(trace, client.post(url + "/chat/completions", b"12345"))
    call = only_call(trace)
    assert (call.status, call.first_byte_ns, call.ok, call.prompt_bytes) == (None, None, False, 5)
    assert call.error is not None
    assert "Connect" in call.error
    assert call.end_ns is not None
    assert trace.usage().retries == 1


@pytest.mark.parametrize("library", LIBRARIES)
async def test_a_connection_that_breaks_inside_the_body_is_a_retry(library):
    async with FakeLlm(Reply([whole(tools=True)[:40]], cut=True)) as llm, Client.of(library) as client:
        border.install(llm.base_url)
        trace = open_trace(None)
        with pytest.raises((aiohttp.ClientPayloadError, httpx.RemoteProtocolError, httpx2.RemoteProtocolError)):
            await in_request(trace, client.post(llm.url))
    call = only_call(trace)
    assert (call.status, call.ok) == (200, False)
    assert call.error in ("ClientPayloadError", "RemoteProtocolError")
    assert call.first_byte_ns is not None
    assert call.end_ns is not None


@pytest.mark.parametrize("library", LIBRARIES)
async def test_a_body_that_the_client_leaves_early_is_abandoned(library):
    gate = asyncio.Event()
    body = events(tools=False)
    async with FakeLlm(Reply([body[:60], body[60:]], content_type=SSE, gate=gate)) as llm, Client.of(library) as client:
        border.install(llm.base_url)
        trace = open_trace(None)
        await in_request(trace, first_piece(client, llm.url))
        gate.set()
    call = only_call(trace)
    assert (call.status, call.error, call.ok) == (200, "abandoned", False)
    assert call.end_ns is not None
    assert trace.usage().retries == 1


async def first_piece(client: Client, url: str) -> bytes:
    async with client.pieces(url) as pieces:
        async for piece in pieces:
            return piece
    raise AssertionError("there was no piece")


@pytest.mark.parametrize("library", LIBRARIES)
async def test_a_client_that_leaves_after_done_made_a_good_call(library):
    gate = asyncio.Event()
    reply = Reply([events(tools=True), b"\n"], content_type=SSE, gate=gate, chunked=True)
    async with FakeLlm(reply) as llm, Client.of(library) as client:
        border.install(llm.base_url)
        trace = open_trace(None)
        await in_request(trace, up_to_done(client, llm.url))
        gate.set()
    assert_read(only_call(trace), wants_tools=True, streamed=True)
    assert trace.usage().retries == 0


async def up_to_done(client: Client, url: str) -> None:
    seen = b""
    async with client.pieces(url) as pieces:
        async for piece in pieces:
            seen += piece
            if b"[DONE]" in seen:
                return


@pytest.mark.parametrize("library", LIBRARIES)
async def test_a_call_that_is_still_open_is_closed_by_the_end_of_the_request(library):
    gate = asyncio.Event()
    body = whole(tools=True)
    async with FakeLlm(Reply([body[:60], body[60:]], gate=gate)) as llm, Client.of(library) as client:
        border.install(llm.base_url)
        trace = open_trace(None)
        reading = asyncio.ensure_future(in_request(trace, client.post(llm.url)))
        await llm.arrived.wait()
        trace.finish()
        call = only_call(trace)
        assert (call.end_ns, call.error, call.ok) == (trace.end_ns, "abandoned", False)
        gate.set()
        assert await reading == (200, body)
    # What arrives afterwards does not rewrite the record.
    assert (call.end_ns, call.error, call.status, call.wants_tools) == (trace.end_ns, "abandoned", None, None)


@pytest.mark.parametrize("library", LIBRARIES)
async def test_a_cancelled_call_is_closed_and_not_good(library):
    gate = asyncio.Event()
    body = events(tools=False)
    async with FakeLlm(Reply([body[:-20], body[-20:]], content_type=SSE, gate=gate)) as llm:
        async with Client.of(library) as client:
            border.install(llm.base_url)
            trace = open_trace(None)
            at_gate = asyncio.Event()
            reading = asyncio.ensure_future(in_request(trace, read_until_stuck(client, llm.url, at_gate)))
            await at_gate.wait()
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
        gate.set()
    call = only_call(trace)
    assert (call.ok, call.error) == (False, "abandoned")
    assert call.end_ns is not None


async def read_until_stuck(client: Client, url: str, at_gate: asyncio.Event) -> None:
    async with client.pieces(url) as pieces:
        async for _ in pieces:
            at_gate.set()


@pytest.mark.parametrize("library", LIBRARIES)
async def test_the_traceparent_on_the_wire_is_a_child_of_the_request(library):
    async with FakeLlm() as llm, Client.of(library) as client:
        border.install(llm.base_url)
        for flags in ("01", "00"):
            trace = open_trace(f"00-{'ab' * 16}-{'cd' * 8}-{flags}")
            theirs = {"traceparent": f"00-{'11' * 16}-{'22' * 8}-01", "x-kept": "yes"}
            await in_request(trace, client.post(llm.url, headers=theirs))
            (sent,) = llm.asked[-1].all("traceparent")
            received = open_trace(sent)
            assert received.trace_id == trace.trace_id == int("ab" * 16, 16)
            assert received.parent_span_id == only_call(trace).span_id
            assert received.sampled == (flags == "01")
            assert llm.asked[-1].all("x-kept") == ["yes"]


@pytest.mark.parametrize("library", LIBRARIES)
async def test_other_addresses_are_left_alone(library):
    async with FakeLlm() as llm, FakeLlm() as other, Client.of(library) as client:
        border.install(llm.base_url)
        trace = open_trace(None)
        for url in (other.url, llm.url.replace("127.0.0.1", "localhost")):
            assert await in_request(trace, client.post(url)) == (200, whole(tools=False))
        assert trace.llm_calls == []
        assert [asked.all("traceparent") for asked in (*other.asked, *llm.asked)] == [[], []]


@pytest.mark.parametrize("library", LIBRARIES)
async def test_calls_outside_a_request_are_left_alone(library):
    async with FakeLlm() as llm, Client.of(library) as client:
        border.install(llm.base_url)
        assert await client.post(llm.url) == (200, whole(tools=False))
        assert llm.asked[0].all("traceparent") == []


@pytest.mark.parametrize("library", LIBRARIES)
async def test_concurrent_requests_do_not_mix(library):
    def echo(asked: Asked) -> Reply:
        model = json.loads(asked.body)["model"]
        body = whole(tools=int(model) % 2 == 0, model=model)
        return Reply([body[:30], body[30:]])

    async def three_calls(client: Client, url: str, model: int) -> None:
        for padding in range(3):
            await client.post(url, json.dumps({"model": str(model), "padding": "x" * padding * model}).encode())

    async with FakeLlm(echo) as llm, Client.of(library) as client:
        border.install(llm.base_url)
        traces = [open_trace(None) for _ in range(20)]
        await asyncio.gather(
            *(in_request(trace, three_calls(client, llm.url, number)) for number, trace in enumerate(traces))
        )
        sizes = {asked.all("traceparent")[0]: len(asked.body) for asked in llm.asked}
    for number, trace in enumerate(traces):
        assert [call.model for call in trace.llm_calls] == [str(number)] * 3
        assert {call.wants_tools for call in trace.llm_calls} == {number % 2 == 0}
        assert [sizes[trace.traceparent(call.span_id)] for call in trace.llm_calls] == [
            call.prompt_bytes for call in trace.llm_calls
        ]


@pytest.mark.parametrize("library", LIBRARIES)
async def test_the_connections_that_a_request_opens_are_its_own(library):
    async def calls(client: Client, url: str, together: int) -> None:
        await asyncio.gather(*(client.post(url) for _ in range(together)))

    async with FakeLlm() as llm, Client.of(library) as client:
        border.install(llm.base_url)
        opened = []
        for together in (1, 1, 3, 3):
            trace = open_trace(None)
            await in_request(trace, calls(client, llm.url, together))
            opened.append(trace.usage().connections)
    assert opened == [1, 0, 2, 0]


@pytest.mark.parametrize("library", LIBRARIES)
async def test_a_connection_that_is_refused_was_not_opened(library):
    with socket.socket() as placeholder:
        placeholder.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{placeholder.getsockname()[1]}/v1"
        border.install(url)
        trace = open_trace(None)
        async with Client.of(library) as client:
            with pytest.raises(Exception, match=r"(?i)connect"):
                await in_request(trace, client.post(url))
    assert trace.usage().connections == 0


async def test_a_client_that_asked_for_httpcores_events_still_gets_them():
    seen = []

    async def theirs(event: str, _: dict[str, object]) -> None:
        seen.append(event)

    async with FakeLlm() as llm, httpx.AsyncClient() as client:
        border.install(llm.base_url)
        trace = open_trace(None)
        await in_request(trace, client.post(llm.url, content=b"{}", extensions={"trace": theirs}))
    assert "connection.connect_tcp.complete" in seen
    assert trace.usage().connections == 1


@pytest.mark.parametrize("library", LIBRARIES)
async def test_a_call_for_a_request_that_is_over_never_leaves(library):
    async with FakeLlm() as llm, Client.of(library) as client:
        border.install(llm.base_url)
        trace = open_trace(None)
        trace.close()
        with pytest.raises(RequestOver):
            await in_request(trace, client.post(llm.url))
        assert llm.asked == []
        assert trace.llm_calls == []


async def test_every_imported_client_library_is_wrapped():
    assert border.install("http://127.0.0.1:1/v1").wrapped == ["aiohttp", "httpx", "httpx2"]


@pytest.mark.parametrize("library", LIBRARIES)
async def test_a_connection_is_counted_where_it_is_opened_and_not_where_it_is_reused(library):
    async with FakeLlm(Reply([whole(tools=True)])) as llm, Client.of(library) as client:
        border.install(llm.base_url)
        trace = open_trace(None)
        for _ in range(3):
            await in_request(trace, client.post(llm.url))
        assert [call.connections for call in trace.llm_calls] == [1, 0, 0]
        assert trace.usage().connections == 1
        other = open_trace(None)
        await in_request(other, at_once(client, llm.url, 3))
    # One is there; the other two calls, at the same time, need one each.
    assert sorted(call.connections for call in other.llm_calls) == [0, 1, 1]


async def at_once(client: Client, url: str, count: int) -> None:
    await asyncio.gather(*(client.post(url) for _ in range(count)))


@pytest.mark.parametrize("library", ["httpx", "httpx2"])
async def test_a_trace_extension_of_the_clients_own_still_gets_every_event(library):
    module = {"httpx": httpx, "httpx2": httpx2}[library]
    seen: list[str] = []

    async def theirs(event: str, info: dict[str, object]) -> None:
        seen.append(event)

    async with FakeLlm(Reply([whole(tools=True)])) as llm, module.AsyncClient() as client:
        border.install(llm.base_url)
        trace = open_trace(None)

        async def ask() -> None:
            await client.post(llm.url, content=b"{}", extensions={"trace": theirs})

        await in_request(trace, ask())
    assert only_call(trace).connections == 1
    assert "connection.connect_tcp.complete" in seen
    assert "http11.receive_response_body.complete" in seen


@pytest.mark.parametrize("library", LIBRARIES)
async def test_a_connection_that_cannot_be_opened_is_none(library):
    async with Client.of(library) as client:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        border.install(f"http://127.0.0.1:{port}/v1")
        trace = open_trace(None)
        with pytest.raises(Exception, match=r"."):
            await in_request(trace, client.post(f"http://127.0.0.1:{port}/v1/chat/completions"))
    assert only_call(trace).connections == 0
