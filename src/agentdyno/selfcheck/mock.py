"""Check `mock`: is the mock LLM so quick that it is never what is measured?"""

from __future__ import annotations

from agentdyno.rig.environments.building import say
from agentdyno.selfcheck.check import Check, Findings, Setting
from agentdyno.selfcheck.mock_rate import measure as measure_rate
from agentdyno.selfcheck.result import at_least, at_most, figure

OTHER_MOCK_RPS = 460  # what PyPI's `mockllm` serves on one core, measured on the machine of DESIGN.md
TIMES_AS_MANY = 20
RATE_RPS = 800.0
CPU_PERCENT = 25.0
DURATION_S = 4.0
REPEATS = 3


def measure(setting: Setting) -> Findings:
    """Repeat: saturated, then at 800 calls a second, which is four calls each of 200 requests."""
    found = []
    for repeat in range(setting.repeats(REPEATS)):
        say(f"mock: repeat {repeat + 1}")
        found.append(measure_rate(setting.seconds(DURATION_S), rate_rps=RATE_RPS))
    per_core = [it["requests_per_core_s"] for it in found]
    return Findings(
        (
            figure("calls per core second", "", per_core, at_least(TIMES_AS_MANY * OTHER_MOCK_RPS)),
            figure(
                "CPU at 800 calls/s", "% of a core", [it["cpu_percent_at_rate"] for it in found], at_most(CPU_PERCENT)
            ),
            figure("calls reached of 800/s", "/s", [it["achieved_rate_rps"] for it in found]),
        ),
        (f"The other mock's {OTHER_MOCK_RPS} calls/s were measured once, on a machine like this one.",),
    )


CHECK = Check("mock", "the mock LLM is never the bottleneck", measure)
