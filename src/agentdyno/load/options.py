"""The Locust arguments of an open-loop run, and the load plan that they make."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from locust.env import Environment
from locust.event import EventHook

from agentdyno.contract.quantities import parse_duration_s, parse_rate_rps
from agentdyno.contract.run import LoadPlan
from agentdyno.contract.scenario import SCENARIOS


class OptionsError(ValueError):
    """The options make no plan; the text says which one and why."""


def listen(hook: EventHook, handler: Callable[..., object]) -> None:
    """Add a listener to one of Locust's events."""
    add: Callable[..., object] = hook.add_listener
    add(handler)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to Locust's parser. They stay text, as the web UI and the master hand them on."""
    add = parser.add_argument
    add("--rate", default="200", type=_text(parse_rate_rps), help="arrivals per second: 200, 0.5, 200/s, 12000/min")
    add("--warmup", default="10s", type=_text(_any_duration_s), help="warm-up before the measurement; 0s for none")
    add("--duration", default="60s", type=_text(parse_duration_s), help="measurement: 60s, 10m, 1m30s")
    add("--cooldown", default="1s", type=_text(_any_duration_s), help="load after the measurement; 0s for none")
    add("--request-timeout", default="10s", type=_text(parse_duration_s), help="given up after this, from the send")
    add("--max-in-flight", default="1000", type=_text(_positive), help="per worker; arrivals beyond it are dropped")
    add("--seed", default="1", type=_text(_count), help="orders, sessions and trace ids follow from it")
    add("--scenario", default="chain", choices=sorted(SCENARIOS), help="what each request asks for")
    add("--trace-every", default="1", type=_text(_count), help="trace each so-manieth arrival; 1: all, 0: none")
    add("--records", default="", metavar="DIR", help="write the raw records as JSON lines into this new folder")
    add(
        "--plan-workers",
        default="0",
        type=_text(_count),
        help="number of workers that share the schedule; 0: as many as --processes or --expect-workers says",
    )
    add_metrics_arguments(parser)
    # Failures are data: the records and the final table carry them. Progress is the rig's to show.
    parser.set_defaults(only_summary=True, loglevel="WARNING")


def add_metrics_arguments(parser: argparse.ArgumentParser) -> None:
    """Add those that say where the load's metrics are served."""
    add = parser.add_argument
    add("--metrics-port", default="0", type=_text(_count), help="serve /metrics on this port; 0: do not")
    add("--metrics-host", default="127.0.0.1", metavar="ADDRESS", help="where to serve them; loopback unless in a pod")


def options_of(environment: Environment) -> argparse.Namespace:
    """The parsed options; Locust has them from the start to the end of its process."""
    options: argparse.Namespace | None = environment.parsed_options
    if options is None:
        raise RuntimeError("Locust has parsed no options")
    return options


def plan_of(options: argparse.Namespace) -> LoadPlan:
    """The plan that parsed Locust options make. Raises OptionsError with a sentence (the web UI checks nothing)."""
    try:
        workers = _count(str(options.plan_workers))
        if workers == 0:
            workers = options.expect_workers if options.master else 1
        scenario = str(options.scenario)
        if scenario not in SCENARIOS:
            raise ValueError(f"There is no scenario {scenario!r}; there are {', '.join(sorted(SCENARIOS))}.")
        return LoadPlan(
            rate=parse_rate_rps(str(options.rate)),
            warmup_s=_any_duration_s(str(options.warmup)),
            duration_s=parse_duration_s(str(options.duration)),
            cooldown_s=_any_duration_s(str(options.cooldown)),
            timeout_s=parse_duration_s(str(options.request_timeout)),
            max_in_flight=_positive(str(options.max_in_flight)),
            seed=_count(str(options.seed)),
            scenario=scenario,
            workers=workers,
            trace_every=_count(str(options.trace_every)),
        )
    except ValueError as error:
        raise OptionsError(str(error)) from error


def metrics_port(options: argparse.Namespace) -> int | None:
    """The port that --metrics-port names."""
    return int(options.metrics_port) or None


def records_folder(options: argparse.Namespace) -> Path | None:
    """The folder that --records names."""
    return Path(options.records) if options.records else None


def _any_duration_s(text: str) -> float:
    return parse_duration_s(text, allow_zero=True)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise ValueError(f"{text[:40]!r} is not a whole number of zero or more.")
    return int(text)


def _positive(text: str) -> int:
    number = _count(text)
    if number == 0:
        raise ValueError(f"{text!r} must be one or more.")
    return number


def _text(parse: Callable[[str], object]) -> Callable[[str], str]:
    """An argparse type that checks with `parse`, shows its sentence, and keeps the text."""

    def checked(text: str) -> str:
        try:
            parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error
        return text

    return checked
