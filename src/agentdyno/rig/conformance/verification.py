"""`agentdyno verify`: the conformance test of one adapter as a person asks for it."""

from __future__ import annotations

import sys

from agentdyno.contract.run import ExitCode
from agentdyno.rig.conformance.requirements import verify
from agentdyno.rig.environments.building import ensure
from agentdyno.rig.environments.environment import adapter_environment, check
from agentdyno.rig.environments.frameworks import resolve


def verify_framework(name: str) -> ExitCode:
    """Print a line for each check; VALID when all hold, GATE_FAILED otherwise."""
    adapter, variant = resolve(name)
    environment = adapter_environment(adapter.path)
    ensure(environment)
    failed = 0
    for difference in check(environment):
        failed += 1
        sys.stdout.write(f"FAIL  its environment is what its lock says\n      {difference}\n")
    for result in verify(adapter, variant):
        if result.failure is None:
            sys.stdout.write(f"ok    {result.name}\n")
        else:
            failed += 1
            sys.stdout.write(f"FAIL  {result.name}\n      {result.failure}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{variant.name}: {'conforms' if not failed else f'{failed} checks failed'}.\n")
    return ExitCode.GATE_FAILED if failed else ExitCode.VALID
