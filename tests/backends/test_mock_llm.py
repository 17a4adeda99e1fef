"""The mock LLM as a client sees it: answers, streams, statistics, seats, cancellation, start and stop."""

from __future__ import annotations

import json
import select
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

import agentdyno
from agentdyno.contract.run import BackendConnections, BackendStats
from tests.backends.mock_process import MODEL, MODULE, ORDER, MockServer, RawClient, chat, get, post, token

CHAIN = [(ORDER,), (ORDER, token("ST")), (ORDER, token("ST"), token("PO")), (ORDER, token("RE"))]
LONG_MS = "const:600000"


class Function(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: str


class Call(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    type: str
    function: Function


class Message(msgspec.Struct, forbid_unknown_fields=True):
    role: str
    content: str | None
    refusal: str | None
    tool_calls: list[Call] | None = None


class Choice(msgspec.Struct, forbid_unknown_fields=True):
    index: int
    message: Message
    logprobs: None
    finish_reason: str


class Usage(msgspec.Struct, forbid_unknown_fields=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Completion(msgspec.Struct, forbid_unknown_fields=True):
    """The fields that OpenAI's SDK requires of a whole answer."""

    id: str
    object: str
    created: int
    model: str
    choices: list[Choice]
    usage: Usage


def complete(server: MockServer, *texts: str, **more: Any) -> Completion:
    answer = server.ask(post(chat(*texts, **more)))
    assert answer.status == 200, answer.body
    return msgspec.json.decode(answer.body, type=Completion)


def assemble(events: list[str]) -> dict[str, Any]:
    """What a client makes of a stream: the message, the finish reason and the usage."""
    assert events[-1] == "[DONE]"
    message: dict[str, Any] = {"content": None, "tool_calls": {}}
    made: dict[str, Any] = {"message": message, "finish_reason": None, "usage": None}
    for number, event in enumerate(json.loads(text) for text in events[:-1]):
        assert event["object"] == "chat.completion.chunk"
        made.setdefault("id", event["id"])
        assert (event["id"], event["model"]) == (made["id"], MODEL)
        made["usage"] = event.get("usage") or made["usage"]
        for choice in event["choices"]:
            delta = choice["delta"]
            assert ("role" in delta) == (number == 0)
            assert delta.get("role", "assistant") == "assistant"
            if delta.get("content"):
                message["content"] = (message["content"] or "") + delta["content"]
            for part in delta.get("tool_calls", ()):
                call = message["tool_calls"].setdefault(part["index"], {"arguments": ""})
                call.update({key: part[key] for key in ("id", "type") if key in part})
                call["arguments"] += part["function"].get("arguments", "")
                call.setdefault("name", part["function"].get("name"))
            made["finish_reason"] = choice["finish_reason"] or made["finish_reason"]
    return made


def flat(completion: Completion) -> dict[str, Any]:
    """A whole answer in the form that `assemble` gives."""
    choice = completion.choices[0]
    calls = {
        index: {"id": call.id, "type": call.type, "name": call.function.name, "arguments": call.function.arguments}
        for index, call in enumerate(choice.message.tool_calls or ())
    }
    return {
        "id": completion.id,
        "message": {"content": choice.message.content, "tool_calls": calls},
        "finish_reason": choice.finish_reason,
        "usage": msgspec.to_builtins(completion.usage),
    }


def test_the_chain_plays_through(shared: MockServer) -> None:
    ids = set()
    expected = [("order_status", ORDER), ("refund_policy", token("ST")), ("resolution", token("PO"))]
    for texts, (name, reference) in zip(CHAIN, expected, strict=False):
        choice = complete(shared, *texts).choices[0]
        assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
        assert choice.message.tool_calls is not None
        (call,) = choice.message.tool_calls
        assert (call.function.name, json.loads(call.function.arguments)) == (name, {"reference": reference})
        ids.add(call.id)
        assert complete(shared, *texts).choices[0].message.tool_calls == [call], "the same request, the same id"
    assert len(ids) == 3
    final = complete(shared, *CHAIN[3])
    assert (final.choices[0].finish_reason, final.choices[0].message.tool_calls) == ("stop", None)
    assert token("RE") in (final.choices[0].message.content or "")


def test_usage_follows_the_token_rule(shared: MockServer) -> None:
    tools_bytes = len(json.dumps(json.loads(chat(ORDER))["tools"], separators=(",", ":")))
    usage = complete(shared, ORDER).usage
    assert usage.prompt_tokens == -(-(tools_bytes + len(ORDER)) // 4)
    assert usage.completion_tokens == -(-len("order_status" + f'{{"reference":"{ORDER}"}}') // 4)
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert complete(shared, ORDER, token("RE")).usage.completion_tokens == 64


def test_parallel_asks_for_all_three_and_quotes_all_three(start) -> None:
    server = start("--scenario", "parallel", timing={"answer_tokens": "const:8"})
    calls = complete(server, ORDER).choices[0].message.tool_calls
    assert calls is not None
    assert [call.function.name for call in calls] == ["order_status", "refund_policy", "resolution"]
    assert len({call.id for call in calls}) == 3
    made = [token(prefix) for prefix in ("PO", "ST", "RE")]
    text = complete(server, ORDER, *made).choices[0].message.content or ""
    assert all(each in text for each in made)


def test_answer_length_is_drawn_and_max_tokens_cuts_it(start) -> None:
    server = start("--seed", "3", timing={"answer_tokens": "uniform:20:200"})
    lengths = []
    for index in range(20):
        order = f"ORD-m{index:x}-00000000"
        found = complete(server, order, token("RE", order))
        assert (
            complete(server, "hello", order, token("RE", order)).usage.completion_tokens
            == found.usage.completion_tokens
        )
        lengths.append(found.usage.completion_tokens)
        assert found.usage.completion_tokens * 4 == len(found.choices[0].message.content or "")
    assert min(lengths) >= 20
    assert max(lengths) <= 200
    assert len(set(lengths)) > 5
    cut = complete(server, order, token("RE", order), max_tokens=5)
    assert (cut.choices[0].finish_reason, cut.usage.completion_tokens) == ("length", 5)
    assert complete(server, order, token("RE", order), max_completion_tokens=500).choices[0].finish_reason == "stop"


@pytest.mark.parametrize("timing", [{}, {"ttft_ms": "const:20"}, {"tokens_per_s": "const:2000", "ttft_ms": "exp:5"}])
@pytest.mark.parametrize("scenario", ["chain", "parallel"])
def test_a_stream_adds_up_to_the_whole_answer(start, scenario: str, timing: dict[str, Any]) -> None:
    server = start("--scenario", scenario, timing=timing)
    for texts in (*CHAIN, ("no order",), (ORDER, *map(token, ("ST", "PO", "RE")))):
        whole = flat(complete(server, *texts))
        answer = server.ask(post(chat(*texts, stream=True, stream_options={"include_usage": True})))
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert assemble(answer.events) == whole
        plain = server.ask(post(chat(*texts, stream=True))).events
        assert assemble(plain) == {**whole, "usage": None}
        assert not any("usage" in event for event in plain)


@pytest.mark.parametrize("limit", [1, 5])
def test_a_stream_that_is_cut_adds_up_too(shared: MockServer, limit: int) -> None:
    asked: dict[str, Any] = {"max_tokens": limit}
    whole = flat(complete(shared, ORDER, token("RE"), **asked))
    streamed = {"stream": True, "stream_options": {"include_usage": True}}
    assert assemble(shared.ask(post(chat(ORDER, token("RE"), **asked, **streamed))).events) == whole


def test_a_stream_has_one_event_a_token(shared: MockServer) -> None:
    events = shared.ask(post(chat(ORDER, token("RE"), stream=True))).events
    pieces = [json.loads(event)["choices"][0]["delta"].get("content") for event in events[:-1]]
    assert [len(piece) for piece in pieces if piece] == [4] * 64


@pytest.mark.parametrize("texts", [(ORDER,), (ORDER, token("RE"))], ids=["call", "text"])
def test_a_stream_says_nothing_before_its_first_token(start, texts: tuple[str, ...]) -> None:
    """Not even the role: whoever takes the time to the first chunk gets the time to the first token."""
    server = start(timing={"ttft_ms": LONG_MS})
    client = server.client()
    client.send(post(chat(*texts, stream=True)))
    assert client.read(head_only=True).status == 200
    client.socket.settimeout(0.2)
    with pytest.raises(TimeoutError):
        client.at_end()


def test_a_stream_s_time_to_first_token_is_that_of_the_token(start) -> None:
    server = start(timing={"ttft_ms": "const:50", "tokens_per_s": "const:1000"})
    server.ask(post(chat(ORDER, token("RE"), stream=True)))
    assert server.metric("vllm:time_to_first_token_seconds_count") == 1
    assert server.metric("vllm:time_to_first_token_seconds_sum") >= 0.05


def test_models_and_health(shared: MockServer) -> None:
    found = shared.ask(get("/v1/models")).json
    assert [model["id"] for model in found["data"]] == [MODEL]
    assert {"object", "created", "owned_by"} < set(found["data"][0])
    assert shared.ask(get("/health")).status == shared.ask(get("/healthz")).status == 200


def test_traceparent_is_accepted(shared: MockServer) -> None:
    header = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n"
    assert shared.ask(post(chat(ORDER), headers=header)).status == 200


def test_stats_are_kept_by_stage(start) -> None:
    server = start()
    bodies = {letter: chat(f"ORD-{letter}1-00000000") for letter in "wmc"}
    usages = {letter: server.ask(post(body)).json["usage"] for letter, body in bodies.items()}
    server.ask(post(chat("ORD-m1-00000000", token("RE", "ORD-m1-00000000"), stream=True)))
    server.ask(post(chat("hello")))
    server.ask(post(b"{"))
    server.ask(post(chat("ORD-w1-00000000", model="x")))
    stats = msgspec.json.decode(server.ask(get("/stats")).body, type=BackendStats)
    assert {letter: (stage.calls, stage.errors, stage.tool_calls) for letter, stage in stats.stages.items()} == {
        "": (1, 1, 0),
        "w": (1, 1, 1),
        "m": (2, 0, 1),
        "c": (1, 0, 1),
    }
    assert stats.stages["c"].prompt_bytes == len(bodies["c"])
    assert stats.stages["c"].prompt_tokens == usages["c"]["prompt_tokens"]
    assert stats.stages["m"].completion_tokens == usages["m"]["completion_tokens"] + 64
    assert (stats.in_flight, stats.in_flight_max, stats.cancelled) == (0, 1, 0)
    assert server.ask(post(b"", "/stats/reset")).json == {
        "stages": {},
        "in_flight": 0,
        "in_flight_max": 0,
        "cancelled": 0,
        "connections": {"accepted": 0, "requests": 0, "most_requests": 0},
    }
    assert server.metric("vllm:generation_tokens_total") > 64, "Prometheus counters never go back"


def test_connections_are_counted_and_belong_to_the_stage_of_their_first_call(start) -> None:
    server = start()
    for stage, calls in (("w", 1), ("m", 3), ("m", 2)):
        client = server.client()
        client.ask(get("/health"))
        for order in (*[f"ORD-{stage}1-00000000"] * calls, "ORD-c1-00000000"):
            client.ask(post(chat(order)))
        client.close()
    stats = msgspec.json.decode(server.ask(get("/stats")).body, type=BackendStats)
    assert {letter: (stage.connections, stage.calls) for letter, stage in stats.stages.items()} == {
        "w": (1, 1),
        "m": (2, 5),
        "c": (0, 3),
    }
    assert stats.connections == BackendConnections(accepted=4, requests=13, most_requests=5)
    server.wait_until(lambda: server.metric("agentdyno_mock_connection_requests_sum") >= 13)
    assert server.metric("agentdyno_mock_connections_total") >= 6


def test_metrics_have_vllm_s_names_and_prometheus_reads_them(start) -> None:
    server = start("--model", 'odd"name', timing={"ttft_ms": "const:3"})
    completion = server.ask(post(chat(ORDER, model='odd"name'))).json
    server.ask(post(chat(ORDER, token("RE"), model='odd"name', max_tokens=3)))
    text = server.ask(get("/metrics")).body.decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert {name: family.type for name, family in families.items()} == {
        "vllm:num_requests_running": "gauge",
        "vllm:num_requests_waiting": "gauge",
        "vllm:prompt_tokens": "counter",
        "vllm:generation_tokens": "counter",
        "vllm:request_success": "counter",
        "agentdyno_mock_connections": "counter",
        "agentdyno_mock_requests": "counter",
        "agentdyno_mock_connection_requests": "histogram",
        "vllm:time_to_first_token_seconds": "histogram",
        "vllm:inter_token_latency_seconds": "histogram",
        "vllm:e2e_request_latency_seconds": "histogram",
        "vllm:request_queue_time_seconds": "histogram",
    }
    samples = [sample for family in families.values() for sample in family.samples]
    assert all(sample.labels["model_name"] == 'odd"name' for sample in samples)
    finished = {s.labels["finished_reason"]: s.value for s in families["vllm:request_success"].samples}
    assert finished == {"stop": 1, "length": 1, "abort": 0}
    generated = completion["usage"]["completion_tokens"] + 3
    assert families["vllm:generation_tokens"].samples[0].value == generated
    counts = {s.name: s.value for s in samples if s.name.endswith(("_count", "_sum"))}
    assert counts["vllm:time_to_first_token_seconds_count"] == 2
    assert counts["vllm:time_to_first_token_seconds_sum"] >= 0.006
    assert counts["vllm:inter_token_latency_seconds_count"] == generated - 2
    for name in ("time_to_first_token", "e2e_request_latency"):
        buckets = [s for s in families[f"vllm:{name}_seconds"].samples if s.name.endswith("_bucket")]
        assert [b.value for b in buckets] == sorted(b.value for b in buckets)
        assert (buckets[-1].labels["le"], buckets[-1].value) == ("+Inf", 2)


def test_seats_serve_first_come_first_served(start) -> None:
    server = start(timing={"ttft_ms": "const:40", "max_num_seqs": 1})
    clients: list[RawClient] = []
    for index in range(5):
        clients.append(server.client())
        clients[-1].send(post(chat(f"ORD-m{index}-00000000", stream=index % 2 == 0)))
        server.wait_until(lambda index=index: server.stats()["in_flight_max"] > index or _all_answered(clients))
    finished: list[RawClient] = []
    while len(finished) < 5:
        readable, _, _ = select.select([c.socket for c in clients if c not in finished], [], [], 20)
        assert len(readable) >= 1
        for client in clients:
            if client.socket in readable and client not in finished:
                assert client.read().status == 200
                finished.append(client)
    assert finished == clients
    assert server.stats()["in_flight"] == 0


def _all_answered(clients: list[RawClient]) -> bool:
    return len(select.select([c.socket for c in clients], [], [], 0)[0]) > 0


def test_a_client_that_goes_away_frees_its_seat_or_its_place(start) -> None:
    server = start(timing={"ttft_ms": LONG_MS, "max_num_seqs": 1})

    def state() -> tuple[float, float]:
        return server.metric("vllm:num_requests_running"), server.metric("vllm:num_requests_waiting")

    seated, queued, last = server.client(), server.client(), server.client()
    seated.send(post(chat(ORDER)))
    server.wait_until(lambda: state() == (1, 0))
    queued.send(post(chat(ORDER, stream=True)))
    server.wait_until(lambda: state() == (1, 1))
    last.send(post(chat(ORDER, stream=True)))
    server.wait_until(lambda: state() == (1, 2))
    queued.close()
    server.wait_until(lambda: state() == (1, 1))
    seated.close()
    server.wait_until(lambda: state() == (1, 0))
    assert last.read(head_only=True).status == 200, "the last in the queue has the seat now"
    last.close()
    server.wait_until(lambda: state() == (0, 0))
    stats = server.stats()
    assert (stats["cancelled"], stats["in_flight"], stats["in_flight_max"]) == (3, 0, 3)
    assert stats["stages"].get("m", {}).get("calls", 0) == 0
    assert 'finished_reason="abort"} 3' in server.ask(get("/metrics")).body.decode()


def test_sigterm_lets_answers_finish_and_closes_the_idle(start) -> None:
    server = start(timing={"ttft_ms": "const:300", "tokens_per_s": "const:1000"})
    idle, whole, stream = server.client(), server.client(), server.client()
    assert idle.ask(get("/health")).status == 200
    whole.send(post(chat(ORDER)))
    stream.send(post(chat(ORDER, token("RE"), stream=True)))
    server.wait_until(lambda: server.stats()["in_flight"] == 2)
    server.signal()
    assert idle.at_end()
    answer = whole.read()
    assert (answer.status, answer.headers["connection"]) == (200, "close")
    assert stream.read().events[-1] == "[DONE]"
    assert server.stop() == (0, "")
    with pytest.raises(ConnectionRefusedError):
        RawClient(server.port)


def test_sigterm_cuts_what_outlasts_the_grace(start) -> None:
    server = start("--grace-s", "0.1", timing={"ttft_ms": LONG_MS})
    client = server.client()
    client.send(post(chat(ORDER)))
    server.wait_until(lambda: server.stats()["in_flight"] == 1)
    code, errors = server.stop()
    assert code == 0
    assert "not finished 0.1 s after the signal" in errors


def run(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": str(Path(agentdyno.__file__).parents[1])}
    command = [sys.executable, "-m", MODULE, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=20, check=False, **more)


def test_an_inherited_socket_is_served() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    environment = {"PYTHONPATH": str(Path(agentdyno.__file__).parents[1])}
    command = [sys.executable, "-m", MODULE, "--fd", str(listener.fileno())]
    with subprocess.Popen(command, pass_fds=[listener.fileno()], env=environment, stdout=subprocess.PIPE) as process:
        listener.close()
        client = RawClient(port)  # connects before the process is up: the socket listens already
        assert client.ask(get("/health")).status == 200
        client.close()
        process.terminate()
        assert process.wait(timeout=20) == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "one of the arguments --port --fd is required"),
        (("--port", "0", "--scenario", "x"), "invalid choice: 'x'"),
        (("--port", "0", "--timing", "{"), "--timing: Input data was truncated"),
        (("--port", "0", "--timing", '{"ttft": "const:1"}'), "unknown field `ttft`"),
        (("--port", "0", "--timing", '{"ttft_ms": "const:-1"}'), "must be finite and not negative"),
        (("--port", "0", "--timing", '{"max_num_seqs": 0}'), "at least one seat"),
        (("--port", "99999"), "cannot listen on 127.0.0.1:99999"),
        (("--fd", "77"), "cannot listen on file descriptor 77"),
        (("--port", "0", "--host", "not.an.address.invalid"), "cannot listen on not.an.address.invalid:0"),
    ],
)
def test_wrong_usage_exits_2_with_a_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_a_taken_port_is_said_in_words(shared: MockServer) -> None:
    done = run("--port", str(shared.port))
    assert done.returncode == 2
    assert f"cannot listen on 127.0.0.1:{shared.port}" in done.stderr


def test_help_has_examples() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert "lognormal:MEDIAN:SIGMA" in done.stdout
    assert "examples:" in done.stdout
