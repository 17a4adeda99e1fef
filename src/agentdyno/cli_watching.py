"""The commands that watch a run while it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_FOLDERS = (Path("runs"), Path("campaigns"))


def add(app: typer.Typer) -> None:
    """Put them on the command line."""

    @app.command(
        "top",
        epilog="Examples:\n\n"
        "- `agentdyno top`: the bench that runs, until it ends or Ctrl-C\n"
        "- `agentdyno top --once`: one answer, for scripts: what happens between two looks",
    )
    def watch_a_run(
        run: Annotated[str | None, typer.Argument(help="The beginning of a run's name; default: the newest.")] = None,
        interval: Annotated[float, typer.Option(min=0.5, max=3600, help="Seconds between looks.")] = 2.0,
        once: Annotated[bool, typer.Option("--once", help="Show it once, after an interval, and end.")] = False,
        runs: Annotated[
            list[Path] | None,
            typer.Option(help="Where run folders or campaigns are; may be given again. Default: runs and campaigns."),
        ] = None,
    ) -> int:
        """Watch the running bench: rate, latency, phases, CPU, memory; exits with 2 when none runs."""
        from agentdyno.rig.top import top

        return top(run, runs or _FOLDERS, every_s=interval, once=once)

    @app.command(
        "dashboards",
        epilog="Example:\n\n- `agentdyno dashboards`, and in another terminal `agentdyno bench bare --observe 1`",
    )
    def serve_dashboards(
        port: Annotated[
            int | None,
            typer.Option(
                min=1,
                max=65535,
                help="Of a Prometheus alone (9090). Not for containers, whose ports are fixed.",
            ),
        ] = None,
    ) -> int:
        """Prometheus, Grafana, Tempo and a collector in containers; without those an installed Prometheus alone."""
        from agentdyno.rig.dashboards import dashboards

        return dashboards(port)
