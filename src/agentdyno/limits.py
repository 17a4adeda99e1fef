"""The commands that look for a framework's limits; `cli.py` adds them to the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Protocol

import typer

_STEPS_HAVE_NO = ("duration", "warmup", "cooldown", "profile", "traces", "idle_wait", "native_spans", "otlp")


class WithBenchOptions(Protocol):
    """Puts the options of `bench`, but for some, in the place of a command's **words."""

    def __call__(self, command: Callable[..., int], without: Sequence[str] = ()) -> Callable[..., int]:
        """The command with them."""


def add_to(app: typer.Typer, with_bench_options: WithBenchOptions) -> None:
    """Make `capacity` and `sweep` commands of the program."""
    app.command(
        "capacity",
        epilog='Example:\n\n- `agentdyno capacity bare --slo "p95<50ms,errors<1%" --rate 100 --max-rate 800`\n\n'
        "Exit codes: 0 a capacity (or a lower bound), 1 no rate meets the objective, 3 it cannot be told.",
    )(with_bench_options(find_capacity, _STEPS_HAVE_NO))
    app.command(
        "sweep",
        epilog="Example:\n\n- `agentdyno sweep lightagent --concurrency 1,10,20,50,100`\n\n"
        "Exit codes: 0 every request succeeded and no tier left anything behind, 1 not so, 3 it was not measured.",
    )(with_bench_options(sweep_framework, (*_STEPS_HAVE_NO, "rate", "workers", "max_in_flight")))


def _option(text: str) -> Any:
    return typer.Option(help=text, show_default=False)


def find_capacity(
    name: Annotated[str, typer.Argument(help="A framework, as `list` shows it.")],
    slo: Annotated[str, _option("The objective. Default p99<2s,errors<0.1%.")] = "p99<2s,errors<0.1%",
    rate: Annotated[str, _option("Where the search begins, arrivals a second. Default 10.")] = "10",
    max_rate: Annotated[str, _option("The highest rate to try. Default 1000.")] = "1000",
    max_steps: Annotated[str, _option("The most steps. Default 40.")] = "40",
    step: Annotated[str, _option("The least time of a step. Default 10s.")] = "10s",
    max_step: Annotated[str, _option("The most time of a step, for low rates. Default 60s.")] = "60s",
    resolution: Annotated[str, _option("How near to the knee, in % of the rate. Default 5%.")] = "5%",
    **words: str | None,
) -> int:
    """Find the highest constant rate that meets an objective, and the curve beyond it; takes options of `bench`."""
    from agentdyno.rig.options import Words
    from agentdyno.rig.series.capacity import capacity
    from agentdyno.rig.series.search_words import SearchWords

    search = {key: value for key, value in locals().items() if key in SearchWords.__dataclass_fields__}
    return capacity(Words(framework=name, rate=rate, **words), SearchWords(**search))


def sweep_framework(
    name: Annotated[str, typer.Argument(help="A framework, as `list` shows it.")],
    concurrency: Annotated[str, _option("Users at once, tier by tier. Default 1,10,20,50,100.")] = "1,10,20,50,100",
    requests: Annotated[str, _option("The least number of requests in a tier. Default 100.")] = "100",
    admission: Annotated[str, _option("Requests the host takes at once, or off. Default off.")] = "off",
    timeout: Annotated[str, _option("When a request is given up. Default 60s.")] = "60s",
    **words: str | None,
) -> int:
    """Users in a closed loop, more and more at once: their times, peaks, and what each tier leaves behind."""
    from agentdyno.rig.options import Words
    from agentdyno.rig.series.sweep import sweep

    return sweep(Words(framework=name, admission=admission, timeout=timeout, **words), concurrency, requests)
