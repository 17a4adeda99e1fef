"""`agentdyno bench`: one run as a person asks for it, from the environment to the last line on stdout."""

from __future__ import annotations

import sys

from rich.console import Console

from agentdyno.contract.run import ExitCode
from agentdyno.record.folder import RunFolder
from agentdyno.report.terminal import print_summary
from agentdyno.rig.building import ensure
from agentdyno.rig.environments import adapter_environment
from agentdyno.rig.frameworks import resolve
from agentdyno.rig.options import Words, read
from agentdyno.rig.run import Run


def bench(words: Words) -> ExitCode:
    """Run it and print the summary; the run folder's path is the last line on stdout.

    Raises OptionError, AdapterError, SetupError or FolderError for what the user can mend.
    """
    options = read(words)
    adapter, variant = resolve(options.framework)
    ensure(adapter_environment(adapter.path))
    folder = RunFolder.create(options.out, variant.name)
    summary, code = Run(options, adapter, variant, folder).run()
    print_summary(summary, Console(file=sys.stdout))
    sys.stdout.write(f"{folder.path}\n")
    return code
