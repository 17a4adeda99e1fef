"""One sentence per entry that says what stands out, from its figures alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agentdyno.analysis.metrics import METRICS, rounded
from agentdyno.contract.campaign import LoadName
from agentdyno.contract.comparison import Difference, EntryUnderLoad, FigureSet, Ratio

_METRICS = {metric.name: metric for metric in METRICS}
_MUCH_MEMORY = 1.25  # times the control's, from where on memory is worth a word
_MOST = 0.4  # of a request's time, from where on a phase is most of it
_PHASES = {
    "parse": "before the first LLM call (parse)",
    "plan": "in planning calls (plan)",
    "tool": "in tools",
    "reflect": "in the answering call (reflect)",
    "respond": "after the last LLM call (respond)",
    "framework": "in the framework between the calls",
}
Loads = Mapping[LoadName, EntryUnderLoad]


def standout(own: Loads, control: Loads | None) -> str:
    """What stands out, the weightiest first. control: None for the control itself."""
    if not any(entry.valid_runs for entry in own.values()):
        return "No valid run: there is nothing to compare."
    parts = [*_cpu(own, control), *_overload(own), *_work(own, control), *_phase(own), *_memory(own, control)]
    lead = "The control, the same work with no framework: " if control is None else ""
    text = "; ".join(parts) if parts else "nothing stands out"
    text = lead + text + "."
    shaky = [f.unstable for entry in own.values() for f in entry.figures if f.unstable and _headline(f, entry.load)]
    return " ".join([text[0].upper() + text[1:], *shaky[:1]])


def figure(loads: Loads | None, load: LoadName, metric: str) -> FigureSet | None:
    """One metric under one load; None where there is none."""
    entry = None if loads is None else loads.get(load)
    return None if entry is None else next(figures for figures in entry.figures if figures.metric == metric)


def _headline(figures: FigureSet, load: LoadName) -> bool:
    return load in _METRICS[figures.metric].headline


def times(ratio: Ratio) -> str:
    """A ratio in words: `15 times (14.7 to 15.4)`."""
    around = "" if ratio.low is None or ratio.high is None else f" ({rounded(ratio.low)} to {rounded(ratio.high)})"
    return f"{rounded(ratio.median or 0.0)} times{around}"


def _cpu(own: Loads, control: Loads | None) -> Iterator[str]:
    found = figure(own, LoadName.STEADY, "cpu_per_request")
    if found is None or found.median is None:
        return
    cost = f"{rounded(found.median)} ms of CPU per request"
    ratio = found.ratio_to_control
    if control is None or ratio is None or ratio.median is None:
        yield cost
    elif ratio.difference is Difference.NONE:
        yield f"{cost}, no difference from the control"
    else:
        yield f"{cost}, {times(ratio)} the control's"


def _overload(own: Loads) -> Iterator[str]:
    entry = own.get(LoadName.STANDARD)
    if entry is None or not entry.valid_runs:
        return
    goodput = figure(own, LoadName.STANDARD, "goodput")
    if entry.overloaded_runs and goodput is not None and goodput.median is not None:
        share = entry.outcomes["ok"] / entry.arrivals if entry.arrivals else 0.0
        yield (
            f"overloaded under the standard load, where it answers {rounded(goodput.median)} requests a second, "
            f"{share:.0%} of what arrives"
        )
    elif goodput is not None and goodput.median is not None:
        yield f"keeps up with the standard load ({rounded(goodput.median)} a second)"


def _work(own: Loads, control: Loads | None) -> Iterator[str]:
    """Less or more LLM work than the control: it stands beside every other figure."""
    calls, others = figure(own, LoadName.STEADY, "llm_calls"), figure(control, LoadName.STEADY, "llm_calls")
    tokens, their_tokens = figure(own, LoadName.STEADY, "tokens"), figure(control, LoadName.STEADY, "tokens")
    if calls is not None and others is not None and calls.median != others.median and calls.median is not None:
        if others.median is not None:
            less = "less" if calls.median < others.median else "more"
            yield (
                f"{less} work for the LLM: {_counted(calls.median, 'call')} per request, the "
                f"control {rounded(others.median)}"
            )
    elif tokens is not None and their_tokens is not None and tokens.median and their_tokens.median:
        of_control = tokens.median / their_tokens.median
        if not 0.95 < of_control < 1.05:
            yield f"{rounded(of_control)} times the control's tokens ({rounded(tokens.median)} per request)"


def _counted(number: float, what: str) -> str:
    return f"{rounded(number)} {what}{'' if number == 1 else 's'}"


def _phase(own: Loads) -> Iterator[str]:
    entry = own.get(LoadName.STEADY) or own.get(LoadName.STANDARD)
    if entry is None or not entry.phases:
        return
    most = max(entry.phases, key=lambda phase: phase.share)
    if most.share >= _MOST:
        yield f"{most.share:.0%} of a request's time passes {_PHASES.get(most.phase, most.phase)}"


def _memory(own: Loads, control: Loads | None) -> Iterator[str]:
    load = LoadName.STANDARD if LoadName.STANDARD in own else LoadName.STEADY
    found = figure(own, load, "rss_peak")
    if found is None or found.median is None:
        return
    ratio = found.ratio_to_control
    if control is None:
        yield f"memory peaks at {rounded(found.median)} MB"
    elif ratio is not None and ratio.median is not None and ratio.median >= _MUCH_MEMORY:
        yield f"memory peaks at {rounded(found.median)} MB, {rounded(ratio.median)} times the control's"
