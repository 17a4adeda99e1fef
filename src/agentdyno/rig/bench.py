"""`agentdyno bench`: one run as a person asks for it, from the environment to the last line on stdout."""

from __future__ import annotations

import sys

from rich.console import Console

from agentdyno.contract.run import ExitCode
from agentdyno.report.terminal import print_summary
from agentdyno.rig.environments.building import ensure
from agentdyno.rig.environments.environment import VLLM_CPU, adapter_environment
from agentdyno.rig.environments.frameworks import resolve
from agentdyno.rig.native_spans import native_spans
from agentdyno.rig.options import Words, read
from agentdyno.rig.run import Run
from agentdyno.rig.task import begun
from agentdyno.rig.vllm_cpu import remove_what_is_dead, with_backend


def bench(words: Words) -> ExitCode:
    """Run it and print the summary; the run folder's path is the last line on stdout.

    Raises OptionError, AdapterError, SetupError or FolderError for what the user can mend.
    """
    options = with_backend(read(words))
    adapter, variant = resolve(options.framework)
    ensure(adapter_environment(adapter.path))
    native = native_spans(options, adapter, variant)
    with begun(options, adapter, variant) as task:
        summary, code = Run(task, native=native).run()
        if options.backend == VLLM_CPU:
            remove_what_is_dead()
    # Sentences are not broken at a width that nobody looks at.
    print_summary(summary, Console(file=sys.stdout, soft_wrap=not sys.stdout.isatty()))
    sys.stdout.write(f"{task.folder.path}\n")
    return code
