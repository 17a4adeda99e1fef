"""The commands of a cluster: the chart installed and removed, runs there, a run fetched."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentdyno.limits import WithBenchOptions

Release = Annotated[str, typer.Option(help="The chart's release.")]
Namespace = Annotated[str, typer.Option(help="Where it is.")]
Context = Annotated[str | None, typer.Option(help="Of the kubeconfig. Default: its current one.")]
_RELEASE, _NAMESPACE = "dyno", "bench"


def add(app: typer.Typer, with_bench_options: WithBenchOptions) -> None:
    """Put them on the command line. with_bench_options: see cli."""
    cluster = typer.Typer(
        name="cluster",
        no_args_is_help=True,
        rich_markup_mode="markdown",
        help="The same run on Kubernetes, by the chart in k8s/chart; needs a kubeconfig and helm.",
    )
    _add_release(cluster)
    _add_bench(cluster, with_bench_options)
    _add_profile(cluster, with_bench_options)
    _add_compare(cluster, with_bench_options)
    app.add_typer(cluster)

    @app.command(
        "fetch",
        epilog="Example:\n\n- `agentdyno fetch 20260102T0304`: what a run on a cluster left, when the rig was cut off",
    )
    def fetch_a_run(
        run: Annotated[str, typer.Argument(help="A run folder, or the beginning of its name under runs/.")],
        runs: Annotated[Path, typer.Option(help="Where run folders are.")] = Path("runs"),
    ) -> int:
        """Bring the records of a cluster's run into its folder, following it first where it still goes on."""
        from agentdyno.cluster.bench import fetch

        return fetch(run, runs)


def _add_release(cluster: typer.Typer) -> None:
    @cluster.command(
        "install",
        epilog="Examples:\n\n"
        "- `agentdyno cluster install --values k8s/kind-values.yaml`: a laptop, with the scripted LLM\n"
        "- `agentdyno cluster install --values k8s/gpu-values.yaml`: vLLM on a GPU",
    )
    def install_release(
        values: Annotated[list[Path] | None, typer.Option(help="A values file; may be given several times.")] = None,
        release: Release = _RELEASE,
        namespace: Namespace = _NAMESPACE,
        context: Context = None,
    ) -> int:
        """Install the chart, or bring what is there to its present state, and wait until it is ready."""
        from agentdyno.cluster.bench import install
        from agentdyno.cluster.release import Place

        return install(Place(release, namespace, context), values or [])

    @cluster.command("uninstall", epilog="Example:\n\n- `agentdyno cluster uninstall`: the release dyno in bench")
    def uninstall_release(
        release: Release = _RELEASE, namespace: Namespace = _NAMESPACE, context: Context = None
    ) -> int:
        """Remove the release, with records that were not fetched."""
        from agentdyno.cluster.bench import uninstall
        from agentdyno.cluster.release import Place

        return uninstall(Place(release, namespace, context))


def _add_bench(cluster: typer.Typer, with_bench_options: WithBenchOptions) -> None:
    def bench_there(
        name: Annotated[str, typer.Argument(help="A framework, as `list` shows it.")],
        release: Release = _RELEASE,
        namespace: Namespace = _NAMESPACE,
        context: Context = None,
        **words: str | None,
    ) -> int:
        """Measure one framework on the cluster; takes the options of `bench`, the run folder's path is printed last.

        Without --workers there are as many as the rate needs. The backend is the release's own.
        """
        from agentdyno.cluster.bench import bench
        from agentdyno.cluster.release import Place
        from agentdyno.rig.options import Words

        return bench(Words(framework=name, **words), Place(release, namespace, context))

    cluster.command("bench", epilog="Example:\n\n- `agentdyno cluster bench langchain --rate 200 --profile standard`")(
        with_bench_options(bench_there)
    )


def _add_profile(cluster: typer.Typer, with_bench_options: WithBenchOptions) -> None:
    def profile_there(
        name: Annotated[str, typer.Argument(help="A framework, as `list` shows it.")],
        interval: Annotated[str, typer.Option(help="Between heap snapshots.")] = "30s",
        plain: Annotated[str, typer.Option(help="The same load without the profiler first; or off.")] = "30s",
        release: Release = _RELEASE,
        namespace: Namespace = _NAMESPACE,
        context: Context = None,
        **words: str | None,
    ) -> int:
        """Sample one framework's heap on the cluster, in a run of its own; see `profile`, whose report it makes."""
        from agentdyno.cluster.profile import profile
        from agentdyno.cluster.release import Place
        from agentdyno.rig.options import Words

        return profile(Words(framework=name, **words), Place(release, namespace, context), interval, plain)

    cluster.command("profile", epilog="Example:\n\n- `agentdyno cluster profile langchain --rate 10 --duration 2m`")(
        with_bench_options(profile_there)
    )


def _add_compare(cluster: typer.Typer, with_bench_options: WithBenchOptions) -> None:
    def compare_there(
        names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Default: all.")] = None,
        rounds: Annotated[str | None, typer.Option(help="How often each is measured. Default 5.")] = None,
        time: Annotated[str | None, typer.Option(help="A budget such as 30m, instead.")] = None,
        steady_rate: Annotated[str | None, typer.Option(help="The rate that all hold. Default: found.")] = None,
        null: Annotated[str | None, typer.Option(help="off: without the control a second time.")] = None,
        heap: Annotated[
            str | None, typer.Option(help="on: a heap profile of each framework after the rounds. Default off.")
        ] = None,
        curves: Annotated[str | None, typer.Option(help="Only off: capacity searches are local.")] = None,
        resume: Annotated[Path | None, typer.Option(help="A campaign's folder, to measure what is left.")] = None,
        release: Release = _RELEASE,
        namespace: Namespace = _NAMESPACE,
        context: Context = None,
        **words: str | None,
    ) -> int:
        """Measure frameworks side by side on the cluster; see `compare`, whose report it makes."""
        from agentdyno.cluster.compare import compare
        from agentdyno.cluster.release import Place
        from agentdyno.rig.campaign.compare import CampaignWords
        from agentdyno.rig.options import Words

        campaign = CampaignWords(
            names=names or [],
            rounds=rounds,
            time=time,
            steady_rate=steady_rate,
            null=null,
            heap=heap,
            curves=curves,
            resume=resume,
            bench=Words(framework="", **words),
        )
        return compare(campaign, Place(release, namespace, context))

    cluster.command("compare", epilog="Example:\n\n- `agentdyno cluster compare bare langchain --rounds 3`")(
        with_bench_options(compare_there)
    )
