"""The border for aiohttp: every way to send a body and every way to read one."""

import asyncio
import gzip
import inspect
import io

import aiohttp
import pytest

from agentdyno.host import border
from agentdyno.host.trace import open_trace
from tests.host.context import in_request
from tests.host.fake_llm import FakeLlm, Reply, events, whole

pytestmark = pytest.mark.usefixtures("unwrapped")


def form() -> aiohttp.FormData:
    return aiohttp.FormData({"a": "ü&=", "b": "2"})


def multipart() -> aiohttp.FormData:
    made = aiohttp.FormData({"a": "1"})
    made.add_field("file", b"\x00" * 100, filename="f.bin")
    return made


BODIES = {
    "bytes": lambda: {"data": b"\xff" * 9},
    "bytearray": lambda: {"data": bytearray(b"12345")},
    "memoryview": lambda: {"data": memoryview(b"12345")},
    "str": lambda: {"data": "häß"},
    "json": lambda: {"json": {"text": "häß", "list": [1, None]}},
    "empty json object": lambda: {"json": {}},
    "form": lambda: {"data": form()},
    "dict": lambda: {"data": {"a": "ü&=", "b": "2"}},
    "multipart": lambda: {"data": multipart()},
    "BytesIO": lambda: {"data": io.BytesIO(b"12345")},
    "payload": lambda: {"data": aiohttp.BytesPayload(b"1234567")},
    "nothing": dict,
}


@pytest.mark.parametrize("kind", BODIES)
async def test_the_size_of_a_body_is_that_on_the_wire(kind):
    async with FakeLlm() as llm, aiohttp.ClientSession() as session:
        async with session.post(llm.url, **BODIES[kind]()) as response:
            plain = await response.read()
        border.install(llm.base_url)
        trace = open_trace(None)

        async def ask() -> bytes:
            async with session.post(llm.url, **BODIES[kind]()) as response:
                return await response.read()

        assert await in_request(trace, ask()) == plain
        before, after = llm.asked
    assert trace.usage().prompt_bytes == len(after.body)
    assert len(after.body) == len(before.body)
    if kind != "multipart":  # its boundary is random
        assert after.body == before.body
        assert after.all("content-type") == before.all("content-type")


async def test_the_sessions_own_serialiser_is_used():
    for options in (
        {"json_serialize": lambda _: '{"mine": "é"}'},
        {"json_serialize_bytes": lambda _: b'{"mine": "\xc3\xa9"}'},
    ):
        if not set(options) <= set(inspect.signature(aiohttp.ClientSession).parameters):
            continue  # json_serialize_bytes came with aiohttp 3.14
        async with FakeLlm() as llm, aiohttp.ClientSession(**options) as session:
            border.install(llm.base_url)
            trace = open_trace(None)
            await in_request(trace, ask_json(session, llm.url))
            assert llm.asked[0].body.decode() == '{"mine": "é"}'
            assert trace.usage().prompt_bytes == len(llm.asked[0].body)


async def ask_json(session: aiohttp.ClientSession, url: str) -> bytes:
    async with session.post(url, json={"theirs": 1}) as response:
        return await response.read()


async def test_json_beside_data_is_refused_as_aiohttp_does():
    async with FakeLlm() as llm, aiohttp.ClientSession() as session:
        border.install(llm.base_url)

        async def ask() -> None:
            await session.post(llm.url, json={}, data=b"x")

        with pytest.raises(ValueError, match="can not be used at the same time"):
            await in_request(open_trace(None), ask())


async def test_a_malformed_address_is_refused_as_aiohttp_does():
    async with aiohttp.ClientSession() as session:
        border.install("http://127.0.0.1:1/v1")

        async def ask() -> None:
            await session.post("http://[::1")

        with pytest.raises(aiohttp.InvalidURL):
            await in_request(open_trace(None), ask())


@pytest.mark.parametrize("base", ["/v1/", "/"])
async def test_a_session_with_a_base_url(base):
    async with FakeLlm() as llm, FakeLlm() as other:
        border.install(llm.base_url)
        path = "v1/chat/completions".removeprefix(base[1:])
        trace = open_trace(None)
        async with aiohttp.ClientSession(base_url=llm.root + base) as session:
            await in_request(trace, ask_json(session, path))
        assert len(trace.llm_calls) == 1
        assert llm.asked[0].target == "/v1/chat/completions"
        assert len(llm.asked[0].all("traceparent")) == 1
        async with aiohttp.ClientSession(base_url=other.root + base) as session:
            await in_request(trace, ask_json(session, path))
            assert len(trace.llm_calls) == 1
            await in_request(trace, ask_json(session, llm.url))
        assert len(trace.llm_calls) == 2
        assert other.asked[0].all("traceparent") == []


async def collect(iterator) -> bytes:
    return b"".join([piece async for piece in iterator])


async def read_to_eof(read) -> bytes:
    pieces = []
    while data := await read():
        pieces.append(data)
    return b"".join(pieces)


async def by_chunk(content) -> bytes:
    pieces = []
    while True:
        data, end = await content.readchunk()
        if not data and not end:
            return b"".join(pieces)
        pieces.append(data)


async def without_waiting(content) -> bytes:
    pieces = []
    while not content.at_eof():
        pieces.append(content.read_nowait(7))
        await asyncio.sleep(0)
    return b"".join(pieces)


def ways(size: int):
    return {
        "read": lambda r: r.read(),
        "text": lambda r: r.text(),
        "content.read": lambda r: r.content.read(),
        "content.read(n)": lambda r: read_to_eof(lambda: r.content.read(7)),
        "readany": lambda r: read_to_eof(r.content.readany),
        "readline": lambda r: read_to_eof(r.content.readline),
        "readuntil": lambda r: read_to_eof(lambda: r.content.readuntil(b"\n\n")),
        "readexactly": lambda r: r.content.readexactly(size),
        "readchunk": lambda r: by_chunk(r.content),
        "read_nowait": lambda r: without_waiting(r.content),
        "async for": lambda r: collect(r.content),
        "iter_any": lambda r: collect(r.content.iter_any()),
        "iter_chunked": lambda r: collect(r.content.iter_chunked(5)),
        "iter_chunks": lambda r: collect(piece async for piece, _ in r.content.iter_chunks()),
    }


@pytest.mark.parametrize("way", ways(0))
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("streamed", [False, True])
async def test_every_way_to_read_a_body_is_observed(way, chunked, streamed):
    body = events(tools=True) if streamed else whole(tools=True)
    content_type = "text/event-stream" if streamed else "application/json"
    reply = Reply([body[:33], body[33:]], content_type=content_type, chunked=chunked)
    async with FakeLlm(reply) as llm, aiohttp.ClientSession() as session:
        border.install(llm.base_url)

        async def ask() -> bytes | str:
            async with session.post(llm.url, data=b"{}") as response:
                data = await ways(len(body))[way](response)
                # At the end of the body, not when the response is let go; only this way does not look for the end.
                assert way == "readexactly" or trace.llm_calls[0].end_ns is not None
                return data

        trace = open_trace(None)
        seen = await in_request(trace, ask())
    assert seen == (body.decode() if way == "text" else body)
    (call,) = trace.llm_calls
    assert (call.ok, call.error, call.streamed) == (True, None, streamed)
    assert (call.wants_tools, call.prompt_tokens, call.completion_tokens, call.model) == (True, 11, 7, "m-1")
    assert call.end_ns is not None


async def test_json_of_the_response_is_observed():
    async with FakeLlm(Reply([whole(tools=False)])) as llm, aiohttp.ClientSession() as session:
        border.install(llm.base_url)

        async def ask() -> str:
            async with session.post(llm.url, json={}) as response:
                return (await response.json())["model"]

        trace = open_trace(None)
        assert await in_request(trace, ask()) == "m-1"
    assert trace.usage().llm_calls == 1


async def test_readers_own_options_are_passed_on():
    if "max_line_length" not in inspect.signature(aiohttp.StreamReader.readline).parameters:
        pytest.skip("this aiohttp's readline has no options")
    async with FakeLlm(Reply([events(tools=False)])) as llm, aiohttp.ClientSession() as session:
        border.install(llm.base_url)

        async def ask() -> bytes:
            async with session.post(llm.url) as response:
                return await response.content.readline(max_line_length=1000)

        assert await in_request(open_trace(None), ask()) == b": a comment\n"


async def test_a_large_compressed_body_is_read_whole():
    body = events(tools=True) + b": padding\n" * 200_000
    reply = Reply([gzip.compress(body)], content_type="text/event-stream", encoding="gzip")
    async with FakeLlm(reply) as llm, aiohttp.ClientSession() as session:
        border.install(llm.base_url)
        trace = open_trace(None)
        assert await in_request(trace, ask_json(session, llm.url)) == body
    assert (trace.llm_calls[0].wants_tools, trace.llm_calls[0].ok) == (True, True)


async def test_a_compressed_body_that_the_session_leaves_compressed_is_read():
    reply = Reply([gzip.compress(whole(tools=True))], encoding="gzip")
    async with FakeLlm(reply) as llm, aiohttp.ClientSession(auto_decompress=False) as session:
        border.install(llm.base_url)
        trace = open_trace(None)
        assert gzip.decompress(await in_request(trace, ask_json(session, llm.url))) == whole(tools=True)
    assert (trace.llm_calls[0].wants_tools, trace.usage().retries) == (True, 0)


@pytest.mark.parametrize("status", [404, 503])
async def test_the_status_is_known_when_the_session_raises_for_it(status):
    async with FakeLlm(Reply([b"{}"], status=status)) as llm, aiohttp.ClientSession(raise_for_status=True) as session:
        border.install(llm.base_url)
        trace = open_trace(None)
        with pytest.raises(aiohttp.ClientResponseError):
            await in_request(trace, ask_json(session, llm.url))
    (call,) = trace.llm_calls
    assert (call.status, call.error, call.ok) == (status, "ClientResponseError", False)


@pytest.mark.parametrize("way", ["release", "close"])
async def test_letting_a_response_go_ends_its_call(way):
    async with FakeLlm(Reply([whole(tools=True)])) as llm, aiohttp.ClientSession() as session:
        border.install(llm.base_url)

        async def ask() -> None:
            response = await session.post(llm.url)
            getattr(response, way)()

        trace = open_trace(None)
        await in_request(trace, ask())
    (call,) = trace.llm_calls
    assert (call.error, call.ok) == ("abandoned", False)
    assert call.end_ns is not None


async def test_a_time_out_of_the_session_is_a_failed_call():
    gate = asyncio.Event()
    timeout = aiohttp.ClientTimeout(total=0.05)
    async with FakeLlm(Reply([b"{", b"}"], gate=gate)) as llm, aiohttp.ClientSession(timeout=timeout) as session:
        border.install(llm.base_url)
        trace = open_trace(None)
        with pytest.raises(TimeoutError):
            await in_request(trace, ask_json(session, llm.url))
        gate.set()
    (call,) = trace.llm_calls
    assert call.ok is False
    assert call.error is not None
    assert "Timeout" in call.error
