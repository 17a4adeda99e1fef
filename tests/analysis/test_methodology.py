"""What METHODOLOGY.md says of comparisons is what the code does."""

import re
from pathlib import Path

from agentdyno.analysis.campaign_checks import RATE_OFF_MAX
from agentdyno.analysis.intervals import interval
from agentdyno.analysis.metrics import METRICS
from agentdyno.analysis.verdict import CALIBRATION_RATIO_MAX, GENERATOR_CPU_MAX_PERCENT

TEXT = (Path(__file__).resolve().parents[2] / "METHODOLOGY.md").read_text(encoding="utf-8")
COMPARISONS = " ".join(TEXT.partition("\n## Comparisons\n")[2].partition("\n## ")[0].split())


def test_the_factors() -> None:
    for rounds, factor in re.findall(r"f\((\d+)\) = (\d\.\d+)", COMPARISONS):
        values = [float(n % 2) for n in range(int(rounds))]
        low, high = interval(values) or (0.0, 0.0)
        mean = sum(values) / len(values)
        deviation = (sum((value - mean) ** 2 for value in values) / (len(values) - 1)) ** 0.5
        assert abs((high - low) / 2 / deviation - float(factor)) < 0.005


def test_the_spreads() -> None:
    declared = {f"{metric.cv_max:.0%}".replace("%", " %") for metric in METRICS if metric.cv_max is not None}
    assert declared == set(re.findall(r"\| (\d+ %) \| (?:they|it|the work)", COMPARISONS))


def test_the_thresholds() -> None:
    assert f"within {RATE_OFF_MAX:.0%}".replace("%", " %") in COMPARISONS
    assert f"below {GENERATOR_CPU_MAX_PERCENT:g} % of a core" in COMPARISONS
    assert f"within {CALIBRATION_RATIO_MAX - 1:.0%} over".replace("%", " %") in COMPARISONS
