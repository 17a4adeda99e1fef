"""The server's behaviour: routes, and the life of a chat completion from its seat to its last token."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from typing import Any

import msgspec
import orjson

from agentdyno.backends.mock_llm.answer import Answer, chunks, make_answer, whole
from agentdyno.backends.mock_llm.http import Connection
from agentdyno.backends.mock_llm.http_reader import Request
from agentdyno.backends.mock_llm.request import REFUSED, BadRequest, ToolReader, Unparsable, read_request
from agentdyno.backends.mock_llm.script import current_order, next_turn
from agentdyno.backends.mock_llm.stats import PROMETHEUS_TYPE, Meter
from agentdyno.contract.scenario import SCENARIOS, BackendTiming
from agentdyno.contract.timing import parse
from agentdyno.contract.trace import SAMPLED_TRACEPARENT, ServedCall
from agentdyno.emit.sender import Sender

CHAT_PATH = "/v1/chat/completions"
_ERROR_TYPES = {404: "NotFoundError", 405: "MethodNotAllowedError"}
_CLIENT_CLOSED = 499
_TIMER_ROUNDING_S = 0.0005  # uvloop's timers round to whole milliseconds; what is due within that is due
_ROUTES = {
    CHAT_PATH: "POST",
    "/v1/models": "GET",
    "/stats": "GET",
    "/stats/reset": "POST",
    "/metrics": "GET",
    "/health": "GET",
    "/healthz": "GET",
}


class Call(msgspec.Struct, eq=False):
    """One chat completion being served. Times are seconds on the monotonic clock.

    first_s, end_s: when its first and last token are due (set when it gets a seat). traceparent: the caller's
    span, for a span of our own to hang on.
    """

    connection: Connection
    answer: Answer
    stage_letter: str
    prompt_bytes: int
    received_s: float
    traceparent: str | None
    stream: bool
    include_usage: bool
    ttft_s: float
    decode_s: float
    seated_s: float = 0.0
    first_s: float = 0.0
    end_s: float = 0.0
    timer: asyncio.TimerHandle | None = None
    events: list[bytes] = []
    sent: int = 0
    tail: bytes = b""


class Service:
    """The scripted LLM behind the HTTP connections.

    timing: raises ValueError, with a sentence, when one of its distributions is not well written. spans: where
    each served call that is traced is told of. max_model_len: prompts of as many tokens are refused. api_key: what
    clients must say.
    """

    def __init__(
        self,
        *,
        scenario: str,
        seed: int,
        timing: BackendTiming,
        model: str,
        spans: Sender | None = None,
        max_model_len: int | None = None,
        api_key: str | None = None,
    ) -> None:
        if timing.max_num_seqs is not None and timing.max_num_seqs < 1:
            raise ValueError(f"max_num_seqs is {timing.max_num_seqs}, but a server needs at least one seat.")
        self._parallel = SCENARIOS[scenario].parallel
        self._ttft_ms = parse(timing.ttft_ms, seed=seed, quantity="ttft_ms")
        self._tokens_per_s = parse(timing.tokens_per_s, seed=seed, quantity="tokens_per_s")
        self._answer_tokens = parse(timing.answer_tokens, seed=seed, quantity="answer_tokens")
        self._seats = timing.max_num_seqs
        self._model = model
        self._spans = spans
        self._max_model_len = max_model_len
        self._authorization = None if api_key is None else f"Bearer {api_key}"
        self._models_body = orjson.dumps(
            {
                "object": "list",
                "data": [_model_card(model, max_model_len)],
            }
        )
        self._tools = ToolReader()
        self._seated = 0
        self._queue: deque[Call] = deque()
        self._seating = False
        self.meter = Meter(model)

    def handle(self, request: Request, connection: Connection) -> None:
        """Answer one request, now or later; the handler that `Connections` takes."""
        if request.refused is not None:
            self._error(connection, *request.refused)
            return
        path = request.path
        if self._authorization is not None and path.startswith("/v1") and request.authorization != self._authorization:
            self.meter.failed("")
            connection.respond(401, b'{"error":"Unauthorized"}')
            return
        allowed = _ROUTES.get(path)
        if allowed is None:
            self._refuse_early(connection, 404, f"There is nothing at {path}; try {', '.join(_ROUTES)}.")
        elif request.method != allowed and not (request.method == "HEAD" and allowed == "GET"):
            allow = "GET, HEAD" if allowed == "GET" else allowed
            self._refuse_early(connection, 405, f"{path} takes {allow}, not {request.method}.", f"Allow: {allow}\r\n")
        elif path == CHAT_PATH:
            self._chat(request, connection)
        else:
            self._other(path, connection)

    def _other(self, path: str, connection: Connection) -> None:
        if path == "/v1/models":
            connection.respond(200, self._models_body)
        elif path == "/stats":
            connection.respond(200, msgspec.json.encode(self.meter.stats()))
        elif path == "/stats/reset":
            self.meter.reset()
            connection.respond(200, msgspec.json.encode(self.meter.stats()))
        elif path == "/metrics":
            text = self.meter.exposition(len(self._queue), self._spans)
            connection.respond(200, text.encode(), PROMETHEUS_TYPE)
        else:
            connection.respond(200, b'{"status":"ok"}')

    def _error(
        self,
        connection: Connection,
        status: int,
        sentence: str,
        *,
        letter: str = "",
        parameter: str | None = None,
        kind: str = REFUSED,
    ) -> None:
        self.meter.failed(letter)
        error = {"message": sentence, "type": _ERROR_TYPES.get(status, kind), "param": parameter, "code": status}
        connection.respond(status, orjson.dumps({"error": error}))

    def _refuse_early(self, connection: Connection, status: int, sentence: str, extra: str = "") -> None:
        """As vLLM's web framework says it, before anything of vLLM's own has seen the request."""
        self.meter.failed("")
        connection.respond(status, orjson.dumps({"detail": sentence}), extra=extra)

    def _chat(self, request: Request, connection: Connection) -> None:
        try:
            chat = read_request(request.body, self._tools)
        except Unparsable as error:
            self._refuse_early(connection, 400, str(error))
            return
        except BadRequest as error:
            self._error(connection, 400, str(error), parameter=error.parameter, kind=error.kind)
            return
        if chat.model != self._model:
            order = current_order(chat.text)
            letter = order[4] if order else ""
            sentence = f"The model `{chat.model}` does not exist; this is `{self._model}`."
            self._error(connection, 404, sentence, letter=letter, parameter="model")
            return
        if self._max_model_len is not None and chat.prompt_tokens >= self._max_model_len:
            limit = f"This model's maximum context length is {self._max_model_len} tokens."
            sentence = f"{limit} The request has {chat.prompt_tokens} input tokens."
            self._error(connection, 400, sentence, parameter="input_tokens")
            return
        turn = next_turn(
            chat.text, parallel=self._parallel, offered=chat.offered, may_call=chat.may_call, one_call=chat.one_call
        )
        # Without an order id nothing names the request but its own text.
        key = f"{turn.order}:{turn.number}" if turn.order else chat.text
        answer = make_answer(chat, turn, round(self._answer_tokens.draw(key)) if turn.final else 0)
        rate = self._tokens_per_s.draw(key)
        call = Call(
            connection=connection,
            answer=answer,
            stage_letter=turn.stage_letter,
            prompt_bytes=len(request.body),
            received_s=request.received_s,
            traceparent=request.traceparent,
            stream=chat.stream,
            include_usage=chat.include_usage,
            ttft_s=self._ttft_ms.draw(key) / 1000,
            # The first token comes with the time to first token, the others follow at the decode rate.
            decode_s=(answer.completion_tokens - 1) / rate if rate > 0 else 0.0,
        )
        connection.on_gone = lambda: self._cancel(call)
        self.meter.entered(turn.stage_letter, first_on_connection=not connection.calls)
        connection.calls += 1
        self._queue.append(call)
        self._seat_waiting()

    # --- seats ---

    def _seat_waiting(self) -> None:
        """Give free seats to the calls that wait, first come first served; not recursive."""
        if self._seating:
            return
        self._seating = True
        try:
            while self._queue and (self._seats is None or self._seated < self._seats):
                self._seated += 1
                self._start(self._queue.popleft())
        finally:
            self._seating = False

    def _cancel(self, call: Call) -> None:
        """The client has gone: give its seat, or its place in the queue, to the others."""
        self.meter.cancelled()
        self._tell(call, _CLIENT_CLOSED)
        if call.seated_s == 0.0:
            self._queue.remove(call)
            return
        if call.timer is not None:
            call.timer.cancel()
        self._seated -= 1
        self._seat_waiting()

    # --- time ---

    def _start(self, call: Call) -> None:
        call.seated_s = time.monotonic()
        call.first_s = call.seated_s + call.ttft_s
        call.end_s = call.first_s + call.decode_s
        if call.stream:
            call.events, call.tail = chunks(call.answer, call.include_usage)
            call.connection.begin_events()
            self._stream(call)
        elif call.end_s > call.seated_s:
            self._wake(call, call.end_s)
        else:
            self._finish(call)

    def _wake(self, call: Call, due_s: float) -> None:
        """Come back to `call` at `due_s`; an answer that is due at once never gets here, so it costs no timer."""
        loop = asyncio.get_running_loop()
        step = self._stream if call.stream else self._finish
        call.timer = loop.call_later(max(0.0, due_s - time.monotonic()), step, call)

    def _stream(self, call: Call) -> None:
        """Send what is due by the call's absolute schedule; being late once does not shift what follows."""
        count = len(call.events)
        interval_s = call.decode_s / max(1, count - 1)
        since_first_s = time.monotonic() - call.first_s + _TIMER_ROUNDING_S
        if since_first_s >= call.decode_s:
            due = count
        else:
            due = 0 if since_first_s < 0 else int(since_first_s // interval_s) + 1
        if due > call.sent:
            data = b"".join(call.events[call.sent : due])
            call.sent = due
            if due == count:
                self._finish(call, data + call.tail)
                return
            call.connection.send_events(data)
        self._wake(call, call.first_s + call.sent * interval_s)

    def _finish(self, call: Call, last_events: bytes = b"") -> None:
        """The answer is complete: count it, free the seat, send it."""
        self._seated -= 1
        now_s = time.monotonic()
        answer, meter = call.answer, self.meter
        meter.answered(
            call.stage_letter,
            prompt_bytes=call.prompt_bytes,
            prompt_tokens=answer.prompt_tokens,
            completion_tokens=answer.completion_tokens,
            tool_calls=len(answer.tool_calls),
            cut=answer.cut,
        )
        meter.ttft.observe(call.first_s - call.received_s)
        if answer.completion_tokens > 1:
            meter.inter_token.observe(call.decode_s / (answer.completion_tokens - 1), answer.completion_tokens - 1)
        meter.e2e.observe(now_s - call.received_s)
        meter.queue.observe(call.seated_s - call.received_s)
        if call.stream:
            call.connection.send_events(last_events, last=True)
        else:
            call.connection.respond(200, whole(answer))
        self._tell(call, 200)
        self._seat_waiting()

    def _tell(self, call: Call, status: int) -> None:
        """Hand on the span of a call that is over, when it is part of a sampled trace."""
        if self._spans is None or call.traceparent is None:
            return
        caller = SAMPLED_TRACEPARENT.fullmatch(call.traceparent)
        if caller is None:
            return
        end_ns = time.monotonic_ns()
        received_ns, first_ns = int(call.received_s * 1e9), int(call.first_s * 1e9)
        # Without a seat yet it has waited all the time.
        queued_ns = int((call.seated_s - call.received_s) * 1e9) if call.seated_s else end_ns - received_ns
        served = ServedCall(
            trace_id=bytes.fromhex(caller[1]),
            parent_span_id=int(caller[2], 16),
            span_id=random.getrandbits(64) or 1,
            start_ns=received_ns,
            queued_ns=queued_ns,
            first_token_ns=first_ns if call.seated_s and first_ns <= end_ns else None,
            end_ns=end_ns,
            status=status,
            prompt_tokens=call.answer.prompt_tokens,
            completion_tokens=call.answer.completion_tokens if status == 200 else call.sent,
        )
        self._spans.add(lambda: served)


def _model_card(model: str, max_model_len: int | None) -> dict[str, Any]:
    """The one entry of /v1/models, with vLLM's fields."""
    may = ("sampling", "logprobs", "view")
    may_not = ("create_engine", "search_indices", "fine_tuning")
    created = int(time.time())
    permission = {
        "id": "modelperm-agentdyno",
        "object": "model_permission",
        "created": created,
        **{f"allow_{what}": True for what in may},
        **{f"allow_{what}": False for what in may_not},
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }
    return {
        "id": model,
        "object": "model",
        "created": created,
        "owned_by": "agentdyno",
        "root": model,
        "parent": None,
        "max_model_len": max_model_len,
        "permission": [permission],
    }
