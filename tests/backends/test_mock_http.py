"""The mock LLM's HTTP over real sockets: framing, limits, errors, and how connections end."""

from __future__ import annotations

import json
import time

import pytest

from tests.backends.mock_process import MODEL, ORDER, MockServer, chat, chunked, get, post, token

BODY = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": token("RE") + ORDER}]}).encode()


def content(answer) -> str:
    assert answer.status == 200, answer.body
    return answer.json["choices"][0]["message"]["content"]


@pytest.mark.parametrize("request_bytes", [post(BODY), chunked(BODY, 40)], ids=["length", "chunked"])
def test_a_request_may_arrive_split_anywhere(shared: MockServer, request_bytes: bytes) -> None:
    client = shared.client()
    for at in range(1, len(request_bytes)):
        client.send(request_bytes[:at])
        time.sleep(0.0005)
        assert token("RE") in content(client.ask(request_bytes[at:])), f"split at byte {at}"


def test_a_request_may_arrive_byte_by_byte(shared: MockServer) -> None:
    client = shared.client()
    for byte in chunked(BODY, 7):
        client.send(bytes([byte]))
    assert token("RE") in content(client.read())


def test_pipelined_requests_are_answered_in_order(shared: MockServer) -> None:
    client = shared.client()
    orders = [f"ORD-m{index:x}-5d0c2a9b" for index in range(40)]
    client.send(b"".join(post(chat(order, token("RE", order))) for order in orders))
    for order in orders:
        assert token("RE", order) in content(client.read())


def test_pipelined_requests_keep_their_order_behind_a_slow_one(start) -> None:
    server = start(timing={"ttft_ms": "const:100"})
    client = server.client()
    stream = chat(ORDER, token("RE"), stream=True)
    client.send(post(stream) + get("/health") + post(chat(ORDER)) + get("/v1/models"))
    assert client.read().events[-1] == "[DONE]"
    assert client.read().json == {"status": "ok"}
    assert client.read().json["choices"][0]["finish_reason"] == "tool_calls"
    assert client.read().json["object"] == "list"


def test_a_long_body_in_one_piece_leaves_the_connection_usable(shared: MockServer) -> None:
    client = shared.client()
    for _ in range(3):
        assert client.ask(post(chat("x" * 250_000, ORDER))).status == 200
        assert client.ask(get("/health")).status == 200


def test_expect_100_continue_is_invited_before_the_body(shared: MockServer) -> None:
    client = shared.client()
    whole = post(BODY, headers="Expect: 100-continue\r\n")
    head, _, body = whole.partition(b"\r\n\r\n")
    client.send(head + b"\r\n\r\n")
    assert client.read().status == 100
    assert token("RE") in content(client.ask(body))


def test_expect_100_continue_is_said_behind_the_answer_before_it(start) -> None:
    server = start(timing={"ttft_ms": "const:100"})
    client = server.client()
    head, _, body = post(BODY, headers="Expect: 100-continue\r\n").partition(b"\r\n\r\n")
    client.send(post(BODY) + head + b"\r\n\r\n")
    assert client.read().status == 200
    assert client.read().status == 100
    assert client.ask(body).status == 200


def test_a_body_that_is_announced_too_long_is_refused_before_it_is_sent(shared: MockServer) -> None:
    client = shared.client()
    client.send(post(b"", headers="Expect: 100-continue\r\n").replace(b"Length: 0", b"Length: 300001"))
    answer = client.read()
    assert (answer.status, answer.headers["connection"]) == (413, "close")
    assert "300000 bytes" in answer.json["error"]["message"]
    assert client.at_end()


def test_a_chunked_body_that_grows_too_long_is_refused(shared: MockServer) -> None:
    client = shared.client()
    client.send(chunked(b"x" * 300_001, 50_000))
    assert client.read().status == 413
    assert client.at_end()


def test_a_refusal_is_readable_though_the_client_goes_on_sending(shared: MockServer) -> None:
    client = shared.client()
    client.send(post(b"x" * 2_000_000))
    assert client.read().status == 413
    assert client.at_end(), "an orderly end, not a reset that could overtake the answer"


@pytest.mark.parametrize(
    "broken",
    [
        b"nonsense\r\n\r\n",
        b"GET /health HTTP/9.9\r\n\r\n",
        b"GET /health\x00 HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: ten\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_malformed_http_gets_400_behind_the_answers_before_it(shared: MockServer, broken: bytes) -> None:
    client = shared.client()
    client.send(get("/health") + broken)
    assert client.read().status == 200
    answer = client.read()
    assert (answer.status, answer.json["error"]["code"]) == (400, 400)
    assert "not valid HTTP/1.1" in answer.json["error"]["message"]
    assert client.at_end()


def test_an_endless_head_is_refused(shared: MockServer) -> None:
    client = shared.client()
    client.send(b"GET /health HTTP/1.1\r\nX: ")
    client.send(b"x" * 400_000)
    assert client.read().status == 431
    assert client.at_end()


def test_connection_close_is_honoured(shared: MockServer) -> None:
    client = shared.client()
    answer = client.ask(get("/health", headers="Connection: close\r\n"))
    assert answer.headers["connection"] == "close"
    assert client.at_end()


def test_http_1_0_closes_unless_asked_and_streams_without_chunks(shared: MockServer) -> None:
    client = shared.client()
    kept = client.ask(post(BODY, version="1.0", headers="Connection: keep-alive\r\n"))
    assert kept.headers["connection"] == "keep-alive"
    answer = client.ask(post(chat(ORDER, stream=True), version="1.0", headers="Connection: keep-alive\r\n"))
    assert answer.headers["connection"] == "close"
    assert "transfer-encoding" not in answer.headers
    assert answer.events[-1] == "[DONE]"


def test_an_offer_to_upgrade_is_ignored(shared: MockServer) -> None:
    client = shared.client()
    upgrade = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAAA\r\n"
    client.send(post(BODY, headers=upgrade) + get("/v1/models"))
    assert token("RE") in content(client.read())
    assert client.read().json["object"] == "list"


def test_connect_is_refused(shared: MockServer) -> None:
    client = shared.client()
    answer = client.ask(b"CONNECT test:80 HTTP/1.1\r\nHost: test:80\r\n\r\n")
    assert (answer.status, answer.json["error"]["type"]) == (405, "MethodNotAllowedError")
    assert client.at_end()


def test_head_has_the_length_and_no_body(shared: MockServer) -> None:
    client = shared.client()
    client.send(get("/health", "HEAD"))
    answer = client.read(head_only=True)
    assert (answer.status, answer.headers["content-length"]) == (200, "15")
    assert client.ask(get("/health")).status == 200


@pytest.mark.parametrize("target", ["/health?x=1", "http://test/health", "/healthz#a", "/healthz"])
def test_a_target_may_have_a_query_or_a_host(shared: MockServer, target: str) -> None:
    assert shared.ask(get(target)).json == {"status": "ok"}


@pytest.mark.parametrize(
    ("request_bytes", "param", "part"),
    [
        (post(b"{nonsense"), "body.1", "malformed"),
        (post(b'{"model": 1, "messages": "x"'), "body.28", "not a valid chat completion request"),
        (post(b'{"model": "\\udc00", "messages": []}'), "body", "valid"),
        (post(b""), "body", "valid"),
        (post(b"[]"), "body", "Expected `object`"),
        (post(b'{"messages": []}'), "body.model", "missing required field `model`"),
        (post(b'{"model": "agentdyno-mock"}'), "body.messages", "missing required field `messages`"),
        (post(chat(ORDER, max_tokens="x")), "body.max_tokens", "got `str`"),
        (post(chat(ORDER, tools=[{"a": 1}])), "body.tools.0.function", "`tools`"),
        (post(chat(ORDER, tools="x")), "body.tools", "`tools`"),
    ],
)
def test_what_cannot_be_read_is_refused_as_by_vllms_web_framework(
    shared: MockServer, request_bytes: bytes, param: str, part: str
) -> None:
    check_error(shared, request_bytes, 400, "Bad Request", param, part)


@pytest.mark.parametrize(
    "body", [b"\xff\xfe\x00", b'{"model": "\xff"}', b"[" * 200_000], ids=["utf16", "latin", "deep"]
)
def test_what_is_no_text_with_json_in_it_never_reaches_vllm_itself(shared: MockServer, body: bytes) -> None:
    client = shared.client()
    answer = client.ask(post(body))
    assert (answer.status, set(answer.json)) == (400, {"detail"})
    assert answer.json["detail"].startswith("The request's body is no text with JSON in it: ")
    assert client.ask(get("/health")).status == 200, "the connection stays usable"


@pytest.mark.parametrize(
    ("request_bytes", "status", "kind", "param", "part"),
    [
        (post(b'{"model": "agentdyno-mock", "messages": []}'), 400, "BadRequestError", None, "is empty"),
        (post(chat(ORDER, n=2)), 400, "BadRequestError", None, "`n` is 2"),
        (post(chat(ORDER, max_tokens=0)), 400, "BadRequestError", "max_tokens", "at least 1"),
        (post(chat(ORDER, model="other")), 404, "NotFoundError", "model", "`other` does not exist"),
    ],
)
def test_what_is_refused_names_the_parameter(
    shared: MockServer, request_bytes: bytes, status: int, kind: str, param: str | None, part: str
) -> None:
    check_error(shared, request_bytes, status, kind, param, part)


def check_error(shared: MockServer, request_bytes: bytes, status: int, kind: str, param: str | None, part: str) -> None:
    client = shared.client()
    answer = client.ask(request_bytes)
    assert answer.status == status
    error = answer.json["error"]
    assert part in error.pop("message")
    assert error == {"type": kind, "param": param, "code": status}
    assert client.ask(get("/health")).status == 200, "the connection stays usable"


@pytest.mark.parametrize(
    ("request_bytes", "status", "part"),
    [
        (get("/nowhere"), 404, "/nowhere"),
        (post(b"{}", "/v1/responses"), 404, "/v1/responses"),
        (get("/v1/chat/completions"), 405, "takes POST"),
        (post(b"", "/stats"), 405, "takes GET"),
    ],
)
def test_what_no_route_takes_is_answered_as_vllms_web_framework_does(
    shared: MockServer, request_bytes: bytes, status: int, part: str
) -> None:
    answer = shared.ask(request_bytes)
    assert (answer.status, set(answer.json)) == (status, {"detail"})
    assert part in answer.json["detail"]


def test_405_says_what_is_allowed(shared: MockServer) -> None:
    assert shared.ask(get("/v1/chat/completions")).headers["allow"] == "POST"
    assert shared.ask(get("/stats", "DELETE")).headers["allow"] == "GET, HEAD"


def test_a_client_that_does_not_read_is_not_read_from_and_gets_everything_later(shared: MockServer) -> None:
    client = shared.client()
    client.socket.settimeout(1)
    request_bytes, sent = post(chat(ORDER, stream=True)) * 20, 0
    try:
        while sent < 20_000:
            client.send(request_bytes)
            sent += 20
    except TimeoutError:
        pass
    assert 0 < sent < 20_000, "the server read on and on"
    client.socket.settimeout(20)
    for _ in range(sent):
        assert client.read().events[-1] == "[DONE]"
