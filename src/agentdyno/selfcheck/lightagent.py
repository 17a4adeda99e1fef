"""Check `lightagent`: our own framework beside the control and beside langchain, by CPU per request.

Through the real bench, untraced, in interleaved rounds. bare and lightagent-llm at a rate where idle work (timers,
the probes) weighs little; langchain at one that it holds on a core, and beside it lightagent-llm at just that rate,
whose idle work then weighs against it.
"""

from __future__ import annotations

from agentdyno.rig.environments.building import say
from agentdyno.selfcheck.benches import ShortRun, late_note, short_run
from agentdyno.selfcheck.check import Check, Findings, Setting
from agentdyno.selfcheck.result import at_least, at_most, figure

FAST_RPS = 100
SLOW_RPS = 10
DURATION_S = 12.0
ROUNDS = 3
OF_CONTROL = 1.3
TIMES_LESS = 10.0
CONTROL = ("bare", FAST_RPS)
OURS = ("lightagent-llm", FAST_RPS)
OURS_SLOW = ("lightagent-llm", SLOW_RPS)
OTHER = ("langchain", SLOW_RPS)
_ARMS = (CONTROL, OURS, OURS_SLOW, OTHER)


def measure(setting: Setting) -> Findings:
    """Rounds: every arm once, each second round backwards."""
    cpu_ms: dict[tuple[str, int], list[float | None]] = {arm: [] for arm in _ARMS}
    runs: list[ShortRun] = []
    duration = f"{setting.seconds(DURATION_S):g}s"
    for number in range(setting.repeats(ROUNDS)):
        for arm in _ARMS if number % 2 == 0 else reversed(_ARMS):
            framework, rate_rps = arm
            say(f"lightagent: round {number + 1}, {framework} at {rate_rps}/s")
            run = short_run(
                setting.folder,
                framework,
                rate=str(rate_rps),
                duration=duration,
                warmup="2s",
                cooldown="0s",
                traces="off",
            )
            runs.append(run)
            cpu_ms[arm].append(run.summary.cpu_ms_per_request)
    times = [figure(f"{name} at {rate}/s", "ms CPU a request", cpu_ms[name, rate]) for name, rate in _ARMS]
    return Findings(
        (
            figure("lightagent-llm / bare", "", _ratios(cpu_ms[OURS], cpu_ms[CONTROL]), at_most(OF_CONTROL)),
            figure("langchain / lightagent-llm", "", _ratios(cpu_ms[OTHER], cpu_ms[OURS_SLOW]), at_least(TIMES_LESS)),
            *times,
        ),
        ["Each ratio is of two runs of the same round at the same rate.", *late_note(runs)],
    )


def _ratios(above: list[float | None], below: list[float | None]) -> list[float | None]:
    pairs = zip(above, below, strict=True)
    return [a / b if a is not None and b else None for a, b in pairs]


CHECK = Check("lightagent", "CPU of our own framework", measure)
