"""The LLM client: retries and back-off, streams cut anywhere, errors as sentences."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lightagent.llm import read_retry_after
from lightagent.reply import ReplyBuilder
from lightagent.sse import SseDecoder

from lightagent import (
    ChatClient,
    LightAgentError,
    LlmConnectionError,
    LlmResponseError,
    LlmStatusError,
    LlmTimeoutError,
    Retry,
)
from tests.lightagent.fake_llm import Cut, Events, FakeLlm, Hang, Sleeps, Status, says, streamed

HELLO = [{"role": "user", "content": "hello"}]


async def ask(script, *, stream=False, retry=None, timeout_s=30.0):
    """The reply (or error), the sleeps asked for, the pieces of text and the LLM."""
    sleeps, pieces = Sleeps(), []
    async with FakeLlm(script).serve() as llm:
        client = ChatClient(
            llm.url, "m", "secret-key", timeout_s=timeout_s, retry=retry, sleep=sleeps, random=lambda: 0.5
        )
        try:
            reply = await client.complete(HELLO, None, pieces.append if stream else None)
        except LightAgentError as error:
            reply = error
        finally:
            await client.close()
    return reply, sleeps.asked_s, pieces, llm


async def test_backs_off_exponentially_with_jitter_and_counts():
    retry = Retry(attempts=4, base_s=1.0, jitter=0.5)
    reply, asked_s, _, llm = await ask([Status(500), Cut(), Status(429), says("hi")], retry=retry)
    assert (reply.text, reply.retries, len(llm.requests)) == ("hi", 3, 4)
    assert asked_s == [0.75, 1.5, 3.0]  # 1, 2, 4 less half of the jitter's half


async def test_gives_up_after_the_last_attempt():
    error, asked_s, _, llm = await ask([Status(503, body="busy")] * 9, retry=Retry(attempts=3))
    assert isinstance(error, LlmStatusError)
    assert (error.status, len(llm.requests), len(asked_s)) == (503, 3, 2)
    assert str(error) == "The LLM's server answered 503: busy"


async def test_a_clients_mistake_is_not_repeated():
    error, asked_s, _, llm = await ask([Status(400)] * 9)
    assert (error.status, asked_s, len(llm.requests)) == (400, [], 1)


async def test_waits_as_long_as_the_server_asks():
    reply, asked_s, _, _ = await ask([Status(429, {"Retry-After": "7"}), says("hi")])
    assert (reply.text, asked_s) == ("hi", [7.0])


async def test_gives_up_on_a_server_that_asks_for_too_long():
    error, asked_s, _, _ = await ask([Status(429, {"Retry-After": "3600"}), says("hi")])
    assert (error.status, error.retry_after_s, asked_s) == (429, 3600.0, [])


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("", None),
        ("12", 12.0),
        ("0.5", 0.5),
        ("Mon, 01 Jan 2024 00:00:30 GMT", 30.0),
        ("Sun, 31 Dec 2023 00:00:00 GMT", 0.0),
        ("soon", None),
        ("-3", None),
        ("nan", None),
    ],
)
def test_reads_retry_after(value, seconds):
    assert read_retry_after(value, datetime(2024, 1, 1, tzinfo=UTC)) == seconds


@given(st.integers(1, 5000), st.floats(0, 1, exclude_max=True), st.floats(0.001, 10), st.floats(0.001, 100))
def test_waits_stay_within_their_bounds(failures, chance, base_s, max_s):
    retry = Retry(attempts=10_000, base_s=base_s, max_s=max_s, jitter=0.5)
    wait_s = retry.wait_s(failures, lambda: chance)
    assert 0 < wait_s <= max_s
    assert wait_s >= min(max_s, base_s) * 0.5
    assert retry.wait_s(10_000, lambda: chance) is None


async def test_a_refused_connection_is_retried_and_then_said_without_the_key():
    async with FakeLlm([]).serve() as llm:
        url = llm.url
    sleeps = Sleeps()
    client = ChatClient(url, "m", "secret-key", retry=Retry(attempts=3), sleep=sleeps)
    with pytest.raises(LlmConnectionError, match=r"The connection to the LLM at http://127\.0\.0\.1:") as caught:
        await client.complete(HELLO)
    await client.close()
    assert len(sleeps.asked_s) == 2
    assert "secret-key" not in f"{caught.value!r} {client!r}"


async def test_a_timeout_is_said_and_not_repeated():
    error, asked_s, _, llm = await ask([Hang()] * 3, timeout_s=0.05)
    assert isinstance(error, LlmTimeoutError)
    assert (asked_s, len(llm.requests)) == ([], 1)


@pytest.mark.parametrize("body", ["", "[]", "{}", '{"choices": []}', '{"choices": [{"message": 3}]}', "<html>"])
async def test_an_answer_that_is_no_completion_is_said(body):
    error, _, _, _ = await ask([Status(200, {"Content-Type": "application/json"}, body)])
    assert isinstance(error, LlmResponseError)


async def test_text_that_is_no_unicode_is_said():
    client = ChatClient("http://127.0.0.1:9/v1", "m")
    with pytest.raises(LightAgentError, match="cannot be written as JSON"):
        await client.complete([{"role": "user", "content": "\ud800"}])


async def test_one_connection_serves_call_after_call_streamed_or_not():
    async with FakeLlm(lambda body: says("hi")).serve() as llm:
        client = ChatClient(llm.url, "m")
        for on_text in (None, [].append, None, [].append):
            assert (await client.complete(HELLO, None, on_text)).text == "hi"
        await client.close()
    assert (len(llm.requests), llm.connections) == (4, 1)


async def test_proxy_variables_are_not_followed(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    reply, asked_s, _, _ = await ask([says("hi")])
    assert (reply.text, asked_s) == ("hi", [])


async def test_streams_over_the_socket_in_pieces_of_one_byte():
    body = streamed(says("Grüße, 世界!"))
    reply, _, pieces, llm = await ask([Events([bytes([byte]) for byte in body])], stream=True)
    assert llm.requests[0]["stream"] is True
    assert llm.requests[0]["stream_options"] == {"include_usage": True}
    assert pieces == ["Gr", "üß", "e,", " 世", "界!"]
    assert (reply.text, reply.prompt_tokens, reply.completion_tokens) == ("Grüße, 世界!", 7, 3)


BOTH = says("Gewiß 🙂", ("look_up", {"reference": "ä"}), ("other", {"n": [1, 2]}))


def read(pieces):
    decoder, texts = SseDecoder(), []
    builder = ReplyBuilder(texts.append)
    for piece in pieces:
        for event in decoder.feed(piece):
            builder.add(event)
    return builder.build(), texts


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_a_stream_cut_at_any_byte_reads_the_same(newline):
    body = streamed(BOTH, newline=newline)
    whole, texts = read([body])
    assert whole.text == "Gewiß 🙂"
    assert [(call.id, call.name, call.arguments) for call in whole.calls] == [
        ("id-0-look_up", "look_up", {"reference": "ä"}),
        ("id-1-other", "other", {"n": [1, 2]}),
    ]
    for at in range(len(body) + 1):
        assert read([body[:at], body[at:]]) == (whole, texts)


@given(st.lists(st.integers(0, len(streamed(BOTH, newline="\r\n"))), max_size=30))
def test_a_stream_cut_often_reads_the_same(cuts):
    body = streamed(BOTH, newline="\r\n")
    borders = [0, *sorted(cuts), len(body)]
    pieces = [body[start:end] for start, end in pairwise(borders)]
    assert read(pieces) == read([body])


def test_events_of_several_lines_comments_and_other_fields():
    decoder = SseDecoder()
    assert decoder.feed(b": c\n\nevent: x\nid: 1\ndata: a\ndata:b\ndata\n\ndata: c\n\n") == [b"a\nb", b"c"]


def test_a_cut_between_cr_and_lf_does_not_end_an_event():
    body = b"data: a\r\ndata: b\r\n\r\n"
    for at in range(len(body) + 1):
        decoder = SseDecoder()
        assert decoder.feed(body[:at]) + decoder.feed(body[at:]) == [b"a\nb"]


def test_an_endless_line_is_refused():
    decoder = SseDecoder()
    decoder.feed(b"x" * 4 * 1024 * 1024)
    with pytest.raises(LlmResponseError, match="longer than"):
        decoder.feed(b"x")


async def test_a_stream_that_breaks_before_any_text_is_repeated():
    body = streamed(says("hello"))
    reply, asked_s, pieces, _ = await ask([Events([body[:30]], broken=True), says("hello")], stream=True)
    assert (reply.text, reply.retries, len(asked_s), "".join(pieces)) == ("hello", 1, 1, "hello")


async def test_a_stream_that_breaks_after_text_is_not_repeated():
    body = streamed(says("hello"))
    broken = Events([body[: body.index(b"ll")], b'"}}]}\n\n'], broken=True)
    error, asked_s, pieces, llm = await ask([broken, says("hello")], stream=True)
    assert isinstance(error, LlmConnectionError)
    assert (asked_s, pieces, len(llm.requests)) == ([], ["he"], 1)


@pytest.mark.parametrize(
    ("events", "said"),
    [
        (b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n', "ended before the answer"),
        (b'data: {"error": {"message": "out of memory"}}\n\n', "out of memory"),
        (b"data: {nonsense\n\n", "cannot be read: {nonsense"),
        (b'data: {"choices": 5}\n\n', "cannot be read"),
    ],
)
async def test_a_wrong_stream_is_said(events, said):
    error, _, _, _ = await ask([Events([events])], stream=True)
    assert isinstance(error, LlmResponseError)
    assert said in str(error)


async def test_a_cancelled_call_hangs_up():
    async with FakeLlm([Hang()]).serve() as llm:
        client = ChatClient(llm.url, "m")
        call = asyncio.create_task(client.complete(HELLO))
        await llm.asked.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.wait_for(llm.hung_up.wait(), 10)
        await client.close()
