"""Check `truth`: is each published percentile what really happened?

The golden server answers after known delays of several shapes and keeps when it received and when it answered. The
truth of a percentile is computed from those times; what the rig publishes for the same run must agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from agentdyno.analysis.percentiles import latency
from agentdyno.contract.proof import Stage, order_id
from agentdyno.contract.summary import Latency
from agentdyno.rig.environments.building import say
from agentdyno.selfcheck.check import Check, Findings, Setting
from agentdyno.selfcheck.driven import Driven, drive, plan
from agentdyno.selfcheck.result import at_most, figure

SHAPES = {
    "constant": "const:5",
    "exponential": "exp:20",
    "log-normal": "lognormal:30:0.5",
    "heavy tail": "lognormal:10:1.6",
}
RATE_RPS = 200
DURATION_S = 30.0  # 6,000 samples; p99.9 needs 4,603
TOLERANCE_SHARE = 0.02
TOLERANCE_MS = 0.5
_PERCENTILES = ("p50", "p90", "p95", "p99", "p999")


@dataclass(frozen=True, slots=True)
class Error:
    """One published percentile beside its truth, ms."""

    which: str
    published: float
    true: float

    @property
    def of_allowed(self) -> float:
        """The error in units of what is allowed; above 1 it is too large."""
        return abs(self.published - self.true) / max(TOLERANCE_SHARE * self.true, TOLERANCE_MS)


def measure(setting: Setting) -> Findings:
    """Each shape once."""
    figures, notes = [], []
    for name, delays in SHAPES.items():
        say(f"truth: {name} ({delays})")
        load_plan = plan(RATE_RPS, setting.seconds(DURATION_S), seed=17)
        run = drive(setting, f"truth-{name.replace(' ', '-')}", load_plan, ["--delays", delays, "--seed", "17"])
        errors = list(_errors(run, load_plan.seed))
        worst = max(errors, key=lambda error: error.of_allowed)
        unpublished = sum(getattr(run.latencies.service, name) is None for name in _PERCENTILES)
        figures += [
            figure(f"{name}: worst error / allowed", "", [worst.of_allowed], at_most(1.0)),
            figure(f"{name}: largest error", "ms", [max(abs(it.published - it.true) for it in errors)]),
            figure(f"{name}: error of the maximum", "ms", [_error_of_maximum(run, load_plan.seed)]),
        ]
        notes.append(
            f"{name}, {delays} ms, {run.latencies.service.n} answers: worst for {worst.which}, "
            f"published {worst.published:.3f} ms where {worst.true:.3f} ms is true"
            + (f"; {unpublished} percentiles had too few samples." if unpublished else ".")
        )
    return Findings(figures, notes)


def _errors(run: Driven, seed: int) -> Iterator[Error]:
    """Every published percentile, from both starts, beside the server's own."""
    intended, service = true_latencies(run, seed)
    for start, published, true in (
        ("from the intended start", run.latencies.intended, intended),
        ("from the send", run.latencies.service, service),
    ):
        for name in _PERCENTILES:
            values = getattr(published, name), getattr(true, name)
            if None not in values:
                yield Error(f"{name} {start}", *values)


def _error_of_maximum(run: Driven, seed: int) -> float | None:
    """Shown without a goal: it is one sample, which one hiccup of the machine decides, and no percentile."""
    published, true = run.latencies.service.max, true_latencies(run, seed)[1].max
    return None if published is None or true is None else abs(published - true)


def true_latencies(run: Driven, seed: int) -> tuple[Latency, Latency]:
    """From the scheduled arrival and from the request's receipt, each to the write of its answer."""
    served = {it.order: it for it in run.truth.served}
    rows = run.requests.stage(Stage.MEASURE)
    intended, service = [], []
    for index, due_ns in enumerate(run.requests.intended_ns[rows]):
        it = served[order_id(seed, Stage.MEASURE, index)]
        intended.append((it.written_ns - run.end.t0_monotonic_ns - due_ns) / 1e6)
        service.append((it.written_ns - it.received_ns) / 1e6)
    return latency(np.array(intended)), latency(np.array(service))


CHECK = Check("truth", "published percentiles beside what the server really did", measure)
