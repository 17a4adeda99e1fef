"""A comparison in words: what a ratio says, what a load is, the verdict on the whole, why a figure is not there."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from itertools import pairwise

from agentdyno.analysis.metrics import METRICS, Better, Metric, rounded
from agentdyno.contract.campaign import LoadName
from agentdyno.contract.comparison import Comparison, Difference, EntryUnderLoad, FigureSet, Ratio
from agentdyno.contract.run import Outcome

DASH = "\u2013"
PROGRAM = ".venv/bin/agentdyno"
LEADING = "cpu_per_request"
_DECLARED = {metric.name: metric for metric in METRICS}
_ALL_ANSWERED = 0.9995
_PURPOSE = {
    LoadName.STEADY: "a rate that every framework holds: latency, phases and CPU per request compare like with like",
    LoadName.STANDARD: "the rate of the published comparison: goodput, rejections, memory and GC under pressure",
}


def declared(name: str) -> Metric:
    """The metric of that name; one that this version does not declare goes by its name, without a unit."""
    return _DECLARED.get(name) or Metric(name, name, "", Better.NEITHER, "", "")


def number(value: float | None) -> str:
    """Rounded by the one rule, or a dash."""
    return DASH if value is None else rounded(value)


def interval(low: float | None, high: float | None) -> str:
    """`1.61 to 1.66`, or nothing where there is no interval."""
    return "" if low is None or high is None else f"{rounded(low)} to {rounded(high)}"


def capitalized(text: str) -> str:
    """With a capital letter first, the others as they are: CPU stays CPU."""
    return text[:1].upper() + text[1:]


def percent(share: float) -> str:
    """`12.3 %`, with one decimal where that is needed to tell it from 0 or 100."""
    whole = share * 100
    return f"{whole:.0f} %" if whole >= 99.95 or (10 <= whole < 99) or whole == 0 else f"{whole:.1f} %"


def times(ratio: Ratio | None) -> str:
    """A ratio in words: `no difference`, `18 % less`, `15.4 times as much`; a dash where it was not measured."""
    if ratio is None or ratio.median is None:
        return DASH
    if ratio.difference is Difference.NONE:
        return "no difference"
    value = ratio.median
    if value >= 2 or value < 0.5:
        return f"{rounded(value)} times as much"
    change = rounded(abs(value - 1) * 100)
    return f"{change} % {'more' if value >= 1 else 'less'}"


def within(ratio: Ratio) -> str:
    """Its interval, or why there is none."""
    return interval(ratio.low, ratio.high) or f"unclear: too few rounds, {ratio.pairs}"


def load_title(load: LoadName, comparison: Comparison) -> str:
    """`steady, 4 requests a second`."""
    rate = comparison.loads.get(load, {}).get("rate")
    return load.value if rate is None else f"{load.value}, {rate:g} requests a second"


def command_again(comparison: Comparison) -> str:
    """The command that measures all of it again: as it was given, with what it left to be found then."""
    words = list(comparison.command)
    names = [entry.label for entry in comparison.entries if not entry.null]
    if not {name for word in _no_options(words) for name in word.split()} & set(names):
        words += names
    rate = comparison.loads.get(LoadName.STEADY, {}).get("rate")
    if rate is not None and not any(word.startswith("--steady-rate") for word in words):
        words.append(f"--steady-rate={rate:g}")
    return f"{PROGRAM} {shlex.join(words)}"


def _no_options(words: Sequence[str]) -> list[str]:
    """Without options and their values, in whose words a framework's name may stand too."""
    return [
        word
        for before, word in pairwise(["", *words])
        if not word.startswith("-") and not (before.startswith("--") and before != "--" and "=" not in before)
    ]


def load_sentence(load: LoadName, comparison: Comparison) -> str:
    """What the load is, and what it is for."""
    plan = comparison.loads.get(load, {})
    if "duration_s" not in plan:
        return f"What it is for: {_PURPOSE[load]}."
    warmup = f" after {plan['warmup_s']:g} s of warm-up" if plan.get("warmup_s") else ""
    timeout = f", time-out {plan['timeout_s']:g} s" if plan.get("timeout_s") else ""
    return f"Each run {plan['duration_s']:g} s{warmup}{timeout}. {capitalized(_PURPOSE[load])}."


def answered(under: EntryUnderLoad) -> float | None:
    """The share of the arrivals of counted runs that were answered and verified."""
    return under.outcomes.get(Outcome.OK, 0) / under.arrivals if under.arrivals else None


def state(under: EntryUnderLoad) -> list[str]:
    """What a reader of this row must know: runs that do not count, overload, arrivals without an answer."""
    said = []
    runs = under.valid_runs + under.invalid_runs
    if under.invalid_runs:
        said.append(f"{under.invalid_runs} of {runs} runs invalid, left out")
    if under.overloaded_runs:
        said.append(f"overloaded in {under.overloaded_runs} of {under.valid_runs} runs")
    share = answered(under)
    if share is not None and share < _ALL_ANSWERED:
        said.append(f"{percent(share)} of arrivals answered")
    return said


def why_missing(under: EntryUnderLoad, figure: FigureSet | None, *, pooled: bool = False) -> str:
    """Why there is no figure: a dash has a reason."""
    if not under.valid_runs:
        return "no run of it counts" if under.invalid_runs else "it was not run under this load"
    if pooled and figure is not None and figure.pooled is not None:
        return f"{figure.pooled.n:,} samples are too few for this percentile"
    if figure is None:
        return "this metric is not in the comparison"
    return "not measured, or too few samples"


def figure_of(under: EntryUnderLoad, metric: str) -> FigureSet | None:
    """The entry's figure of that metric; None where the comparison has none."""
    return next((figure for figure in under.figures if figure.metric == metric), None)


def under_of(comparison: Comparison, label: str, load: LoadName) -> EntryUnderLoad | None:
    """One entry under one load; None where it was not run."""
    return next((u for u in comparison.under_load if u.label == label and u.load is load), None)


def title(comparison: Comparison) -> str:
    """Who is compared with whom."""
    others = [entry.label for entry in comparison.entries if not entry.control and not entry.null]
    if not others:
        return f"The control {comparison.control} alone"
    return f"{_listed(others)} against the control {comparison.control}"


def verdict(comparison: Comparison) -> list[str]:
    """Three sentences: what was done and counts, what it shows, and whether to believe it."""
    return [_what_was_done(comparison), _what_it_shows(comparison), _whether_to_believe(comparison)]


def _what_was_done(comparison: Comparison) -> str:
    counted, planned = sum(run.counted for run in comparison.runs), len(comparison.runs)
    others = sum(not entry.control and not entry.null for entry in comparison.entries)
    frameworks = "1 entry" if others == 1 else f"{others} entries"
    rounds = "1 round" if comparison.rounds == 1 else f"{comparison.rounds} rounds"
    runs = f"all {planned} runs count" if counted == planned else f"{counted} of {planned} runs count"
    unfinished = "" if comparison.complete else ", and the campaign is not complete"
    return f"{frameworks} and the control {comparison.control} were measured in {rounds}; {runs}{unfinished}."


def _what_it_shows(comparison: Comparison) -> str:
    ranked = [label for label in comparison.ranking if label != comparison.control]
    costs = [(label, words) for label in ranked if (words := _cost(comparison, label))]
    if not costs:
        return "No figure of CPU per request under the steady load counts, so nobody is ranked."
    (leanest, least), (dearest, most) = costs[0], costs[-1]
    said = f"CPU per request under the steady load, against the control: {leanest} {least}"
    return f"{said}." if len(costs) == 1 else f"{said} is the leanest, {dearest} {most} the dearest."


def _cost(comparison: Comparison, label: str) -> str | None:
    under = under_of(comparison, label, LoadName.STEADY)
    figure = figure_of(under, LEADING) if under is not None else None
    ratio = figure.ratio_to_control if figure is not None else None
    if ratio is None or ratio.median is None:
        return None
    return f"with {times(ratio)} ({within(ratio)})"


def _whether_to_believe(comparison: Comparison) -> str:
    null, failed = comparison.null_test, [check.name for check in comparison.checks if check.passed is False]
    if null is None:
        said = "There was no null test"
    elif null.passed is None:
        said = "There are too few rounds for the null test to tell anything"
    elif null.passed:
        said = "The null test, one adapter against itself, found no difference"
    else:
        said = f"The null test found a difference where there is none ({_listed(null.found)}): do not trust small ones"
    if not comparison.checks:
        return f"{said}, and no checks were made."
    held = sum(check.passed is True for check in comparison.checks)
    checks = f"{held} of {len(comparison.checks)} checks hold"
    return f"{said}; {checks}" + (f", these do not: {', '.join(failed)}." if failed else ".")


def _listed(names: Iterable[str]) -> str:
    *most, last = list(names) or [""]
    return f"{', '.join(most)} and {last}" if most else last
