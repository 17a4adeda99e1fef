"""The command line. Each command imports what it runs only when it runs, so that `--help` is quick."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from agentdyno.contract.adapter import AdapterError
from agentdyno.contract.run import ExitCode
from agentdyno.rig.environments import RIG, SetupError

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
    "Exit codes: 0 valid, 1 gate failed, 2 usage or set-up, 3 invalid run, 130 interrupted. "
    "Under make every failure is 2, and make's message on stderr names the exact code.",
)

Names = Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Frameworks, as `list` shows them.")]


@app.callback()
def _root() -> None:
    """Commands of the rig."""


@app.command("list")
def list_frameworks() -> int:
    """Show every framework: how it is built and plans, its version, the state of its environment."""
    from agentdyno.rig.listing import framework_table

    sys.stdout.write(framework_table())
    return ExitCode.VALID


@app.command("env")
def build_environments(
    names: Names = None,
    everything: Annotated[bool, typer.Option("--all", help="Every adapter folder's.")] = False,
) -> int:
    """Make environments ready, each from its lock; one that is up to date takes no time."""
    from agentdyno.rig.environments import adapter_environment, ensure

    for folder in _folders(names, everything, "agentdyno env langchain, or agentdyno env --all"):
        ensure(adapter_environment(folder))
    return ExitCode.VALID


@app.command("lock")
def write_locks(
    names: Names = None,
    upgrade: Annotated[bool, typer.Option("--upgrade", help="Take newer versions than the lock has.")] = False,
) -> int:
    """Resolve requirements into locks: all of them, or those named (`rig` is the rig's own)."""
    from agentdyno.rig import locks
    from agentdyno.rig.environments import adapter_environment, rig_environment, say

    wanted = [(rig_environment(), locks.rig_requirements())] if not names or RIG in names else []
    frameworks = [name for name in names or [] if name != RIG]
    for folder in _folders(frameworks, not names) if frameworks or not names else []:
        wanted.append((adapter_environment(folder), locks.adapter_requirements(folder)))
    for environment, requirements in wanted:
        count = locks.write_lock(environment, requirements, upgrade=upgrade)
        say(f"{environment.name}: {count} distributions in {environment.lock.relative_to(environment.root)}")
    return ExitCode.VALID


@app.command("new")
def new_adapter(name: Annotated[str, typer.Argument(help="Lower case, digits, dashes: my-framework.")]) -> int:
    """Make adapters/NAME: an adapter that works as it is, with marks where the framework goes."""
    from agentdyno.rig.new_adapter import create

    sys.stdout.write(create(name))
    return ExitCode.VALID


@app.command("mock-llm", context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})
def mock_llm(context: typer.Context) -> int:
    """Serve the scripted mock LLM; `agentdyno mock-llm --help` lists its own options."""
    from agentdyno.backends.mock_llm import main as serve

    return serve(context.args) or ExitCode.VALID


def _folders(names: Sequence[str] | None, everything: bool, example: str = "") -> list[Path]:
    from agentdyno.rig.frameworks import all_folders, resolve_folder

    if everything:
        return all_folders()
    if not names:
        raise AdapterError(f"Name at least one framework: {example}.")
    return list(dict.fromkeys(resolve_folder(name) for name in names))


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; a user's mistake is a sentence on stderr and 2."""
    try:
        code = app(args=list(arguments) or ["--help"], prog_name="agentdyno", standalone_mode=False)
    except (typer.TyperException, AdapterError, SetupError) as error:
        said = error.format_message() if isinstance(error, typer.TyperException) else str(error)
        sys.stderr.write(f"agentdyno: {said}\n")
        return ExitCode.USAGE
    except (typer.Abort, KeyboardInterrupt):
        code = ExitCode.INTERRUPTED
    if code == ExitCode.INTERRUPTED:
        sys.stderr.write("agentdyno: interrupted.\n")
    return int(code or 0)


def main() -> None:
    """The `agentdyno` program."""
    sys.exit(run(sys.argv[1:]))
