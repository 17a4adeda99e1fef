"""What the mock LLM has served: `/stats` by stage of the run, and `/metrics` under vLLM's names."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from agentdyno.contract.run import BackendConnections, BackendStage, BackendStats
from agentdyno.emit.sender import Sender

# vLLM's own bucket bounds, so that one dashboard's quantiles serve both.
_TTFT_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0),
    *(2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_TOKEN_S = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0),
    *(2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
_REQUEST_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0),
    *(50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
_CONNECTION_REQUESTS = tuple(float(4**power) for power in range(10))
PROMETHEUS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _StageCount:
    __slots__ = ("calls", "completion_tokens", "connections", "errors", "prompt_bytes", "prompt_tokens", "tool_calls")

    def __init__(self) -> None:
        self.calls = self.errors = self.prompt_bytes = 0
        self.prompt_tokens = self.completion_tokens = self.tool_calls = self.connections = 0


class Histogram:
    """A Prometheus histogram over fixed bounds, in seconds where its name says so."""

    def __init__(self, name: str, help_text: str, bounds: tuple[float, ...]) -> None:
        self.name = name
        self.help_text = help_text
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum_s = 0.0

    def observe(self, value_s: float, times: int = 1) -> None:
        """Count `value_s`, `times` times over."""
        self._counts[bisect_left(self._bounds, value_s)] += times
        self._sum_s += value_s * times

    def lines(self, labels: str) -> Iterable[str]:
        """The series in Prometheus' text format."""
        running = 0
        for bound, count in zip((*self._bounds, "+Inf"), self._counts, strict=True):
            running += count
            yield f'{self.name}_bucket{{le="{bound}",{labels}}} {running}'
        yield f"{self.name}_sum{{{labels}}} {self._sum_s}"
        yield f"{self.name}_count{{{labels}}} {running}"


class Meter:
    """Counts calls. `/stats` can be reset between runs; the Prometheus counters only grow, as they must."""

    def __init__(self, model: str) -> None:
        self._labels = f'engine="0",model_name="{_label(model)}"'
        self._stages: dict[str, _StageCount] = {}
        self.in_flight = 0
        self.in_flight_max = 0
        self._cancelled = 0
        self._prompt_tokens = 0
        self._generation_tokens = 0
        self._accepted = self._requests = 0
        self._before_reset = BackendConnections()
        self._most_requests = 0
        self._finished = {"stop": 0, "length": 0, "abort": 0}
        self.ttft = Histogram("vllm:time_to_first_token_seconds", "Time to first token, queueing included.", _TTFT_S)
        self.inter_token = Histogram(
            "vllm:inter_token_latency_seconds", "Time between tokens: each call's mean, once per interval.", _TOKEN_S
        )
        self.e2e = Histogram("vllm:e2e_request_latency_seconds", "Request read to answer written.", _REQUEST_S)
        self.queue = Histogram("vllm:request_queue_time_seconds", "Time spent waiting for a seat.", _REQUEST_S)
        self.per_connection = Histogram(
            "agentdyno_mock_connection_requests", "Requests that came on each closed connection.", _CONNECTION_REQUESTS
        )

    def _stage(self, letter: str) -> _StageCount:
        count = self._stages.get(letter)
        if count is None:
            count = self._stages[letter] = _StageCount()
        return count

    def connection_opened(self) -> None:
        """A connection was accepted."""
        self._accepted += 1

    def connection_used(self, times: int) -> None:
        """A request, the so-manieth on its connection, has come in."""
        self._requests += 1
        self._most_requests = max(self._most_requests, times)

    def connection_closed(self, requests: int) -> None:
        """A connection has ended, with so many requests on it."""
        self.per_connection.observe(requests)

    def entered(self, stage_letter: str, *, first_on_connection: bool) -> None:
        """A valid call has come in."""
        if first_on_connection:
            self._stage(stage_letter).connections += 1
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight)

    def cancelled(self) -> None:
        """A call's client has gone before its answer was out."""
        self.in_flight -= 1
        self._cancelled += 1
        self._finished["abort"] += 1

    def failed(self, stage_letter: str) -> None:
        """A request was answered with an error status."""
        self._stage(stage_letter).errors += 1

    def answered(
        self,
        stage_letter: str,
        *,
        prompt_bytes: int,
        prompt_tokens: int,
        completion_tokens: int,
        tool_calls: int,
        cut: bool,
    ) -> None:
        """A call was fully answered; `cut` when its text was cut at the request's token limit."""
        self.in_flight -= 1
        stage = self._stage(stage_letter)
        stage.calls += 1
        stage.prompt_bytes += prompt_bytes
        stage.prompt_tokens += prompt_tokens
        stage.completion_tokens += completion_tokens
        stage.tool_calls += tool_calls
        self._prompt_tokens += prompt_tokens
        self._generation_tokens += completion_tokens
        # vLLM's engine knows no tool calls: there they finish as "stop".
        self._finished["length" if cut else "stop"] += 1

    def stats(self) -> BackendStats:
        """Everything since the start or the last reset."""
        stages = {
            letter: BackendStage(**{name: getattr(count, name) for name in _StageCount.__slots__})
            for letter, count in sorted(self._stages.items())
        }
        before = self._before_reset
        connections = BackendConnections(
            self._accepted - before.accepted, self._requests - before.requests, self._most_requests
        )
        return BackendStats(stages, self.in_flight, self.in_flight_max, self._cancelled, connections)

    def reset(self) -> None:
        """Start `/stats` afresh; calls in flight stay in flight and count when they end."""
        self._stages.clear()
        self._cancelled = 0
        self._before_reset = BackendConnections(self._accepted, self._requests)
        self._most_requests = 0
        self.in_flight_max = self.in_flight

    def exposition(self, waiting: int, spans: Sender | None = None) -> str:
        """The Prometheus text. waiting: calls of those in flight without a seat yet. spans: whose ledger is shown."""
        labels = self._labels
        lines: list[str] = []
        for name, help_text, value in (
            ("vllm:num_requests_running", "Requests being served now.", self.in_flight - waiting),
            ("vllm:num_requests_waiting", "Requests waiting for a seat now.", waiting),
        ):
            lines += (f"# HELP {name} {help_text}", f"# TYPE {name} gauge", f"{name}{{{labels}}} {value}")
        for name, help_text, value in (
            ("vllm:prompt_tokens_total", "Prompt tokens of answered requests.", self._prompt_tokens),
            ("vllm:generation_tokens_total", "Completion tokens of answered requests.", self._generation_tokens),
            ("agentdyno_mock_connections_total", "Connections accepted.", self._accepted),
            ("agentdyno_mock_requests_total", "Requests of any kind on them.", self._requests),
            *(() if spans is None else spans.counters()),
        ):
            lines += (f"# HELP {name} {help_text}", f"# TYPE {name} counter", f"{name}{{{labels}}} {value}")
        name = "vllm:request_success_total"
        lines += (f"# HELP {name} Finished requests by reason.", f"# TYPE {name} counter")
        lines += (f'{name}{{{labels},finished_reason="{why}"}} {value}' for why, value in self._finished.items())
        for histogram in (self.ttft, self.inter_token, self.e2e, self.queue, self.per_connection):
            lines += (f"# HELP {histogram.name} {histogram.help_text}", f"# TYPE {histogram.name} histogram")
            lines += histogram.lines(labels)
        return "\n".join(lines) + "\n"


def _label(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
