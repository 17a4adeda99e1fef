"""What the border reads from an answer's bytes, and which addresses are the LLM's."""

import gzip
import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentdyno.contract.trace import LlmCall
from agentdyno.host.border import planning
from agentdyno.host.observer import Observer, Origin
from agentdyno.host.trace import now_ns, open_trace
from tests.host.context import in_request
from tests.host.fake_llm import events, whole


def observed(pieces: list[bytes], content_type: str = "application/json", encoding: str = "") -> LlmCall:
    observer = Observer(LlmCall(1, now_ns()))
    observer.begin(200, content_type, encoding)
    for piece in pieces:
        observer.feed(piece)
    observer.finish()
    return observer.call


def split(body: bytes, borders: list[int]) -> list[bytes]:
    places = [0, *sorted(border % (len(body) + 1) for border in borders), len(body)]
    return [body[a:b] for a, b in pairwise(places)]


@given(st.booleans(), st.booleans(), st.booleans(), st.lists(st.integers(0, 5000)))
def test_any_split_of_any_body_says_the_same(tools, streamed, packed, borders):
    body = events(tools=tools) if streamed else whole(tools=tools)
    body = gzip.compress(body) if packed else body
    call = observed(split(body, borders), "text/event-stream" if streamed else "application/json", "gzip" * packed)
    assert (call.ok, call.wants_tools, call.model) == (True, tools, "m-1")
    assert (call.prompt_tokens, call.completion_tokens) == (11, 7)


@given(st.lists(st.binary()), st.sampled_from(["application/json", "text/event-stream"]),
       st.sampled_from(["", "gzip", "deflate", "br"]))  # fmt: skip
def test_no_bytes_raise(pieces, content_type, encoding):
    assert observed(pieces, content_type, encoding).end_ns is not None


@given(st.integers(0, len(events(tools=True))))
def test_a_stream_left_before_done_is_abandoned_and_after_it_is_good(cut):
    body = events(tools=True)
    observer = Observer(LlmCall(1, now_ns()))
    observer.begin(200, "text/event-stream", "")
    observer.feed(body[:cut])
    observer.stop()
    done = b"data: [DONE]" in body[:cut]
    assert observer.call.ok == done
    assert observer.call.error == (None if done else "abandoned")


@given(st.integers(0, len(whole(tools=True))))
def test_a_document_left_before_its_end_is_abandoned(cut):
    observer = Observer(LlmCall(1, now_ns()))
    observer.begin(200, "application/json", "")
    observer.feed(whole(tools=True)[:cut])
    observer.stop()
    assert observer.call.ok == (cut == len(whole(tools=True)))


@pytest.mark.parametrize("end", ["finish", "stop", "fail"])
def test_the_first_end_of_a_call_stands(end):
    observer = Observer(LlmCall(1, now_ns()))
    observer.begin(200, "application/json", "")
    observer.feed(whole(tools=True))
    observer.finish()
    end_ns = observer.call.end_ns
    observer.feed(b"more")
    getattr(observer, end)(*([OSError()] if end == "fail" else []))
    assert (observer.call.end_ns, observer.call.error, observer.call.wants_tools) == (end_ns, None, True)


def test_an_error_status_is_not_read_as_an_answer():
    observer = Observer(LlmCall(1, now_ns()))
    observer.begin(500, "application/json", "")
    observer.feed(whole(tools=True))
    observer.finish()
    assert (observer.call.wants_tools, observer.call.prompt_tokens, observer.call.error) == (None, None, None)
    assert not observer.call.ok


def test_tool_calls_of_any_choice_count_and_empty_ones_do_not():
    for calls, wants in ((None, False), ([], False), ([{"id": "c"}], True)):
        message = {"choices": [{"message": {"content": "x"}}, {"message": {"tool_calls": calls}}]}
        assert observed([json.dumps(message).encode()]).wants_tools is wants
        event = {"choices": [{"delta": {"tool_calls": calls}}]}
        assert observed([b"data:" + json.dumps(event).encode() + b"\n\n"], "text/event-stream").wants_tools is wants


def test_the_model_of_a_stream_is_known_without_usage_or_tools():
    assert observed([events(tools=False, usage=False)], "text/event-stream").model == "m-1"


ORIGINS = [
    ("http://127.0.0.1:8001/v1", ("127.0.0.1", 8001, "http"), True),
    ("http://127.0.0.1:8001/v1", ("127.0.0.1", 8002, "http"), False),
    ("http://127.0.0.1:8001/v1", ("127.0.0.2", 8001, "http"), False),
    ("http://127.0.0.1:8001/v1", (None, None, "http"), False),
    ("http://llm.example/v1", ("llm.example", None, "http"), True),
    ("http://llm.example/v1", ("llm.example", 80, "http"), True),
    ("http://llm.example/v1", ("llm.example", None, "https"), False),
    ("https://LLM.example/v1", ("llm.example", None, "https"), True),
    ("https://llm.example/v1", ("llm.example", 443, "https"), True),
    ("https://llm.example:8443/v1", ("llm.example", None, "https"), False),
    ("http://[::1]:8001/v1", ("::1", 8001, "http"), True),
]


@pytest.mark.parametrize(("base_url", "address", "same"), ORIGINS)
def test_which_addresses_are_the_llms(base_url, address, same):
    assert Origin(base_url).matches(*address) is same


@pytest.mark.parametrize("base_url", ["", "127.0.0.1:8001/v1", "localhost:8001", "/v1", "ftp://h/v1", "http:///v1"])
def test_a_base_url_that_no_call_could_match_is_refused(base_url):
    with pytest.raises(ValueError, match=r"The LLM's base URL is .*; write it in full, as http://"):
        Origin(base_url)


async def test_planning_is_marked_on_its_request_and_free_outside_one():
    with planning():
        pass
    trace = open_trace(None)

    async def plan() -> None:
        with pytest.raises(KeyError), planning():
            raise KeyError
        with planning():
            pass

    await in_request(trace, plan())
    assert len(trace.plannings) == 2
    assert all(trace.start_ns <= planned.start_ns <= planned.end_ns for planned in trace.plannings)
