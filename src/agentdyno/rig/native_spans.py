"""The framework's own spans (NATIVE_SPANS=1): who has any, and the environment that makes them."""

from __future__ import annotations

from agentdyno.contract.adapter import AdapterFolder, Variant, find_variants
from agentdyno.rig.environments.building import ensure
from agentdyno.rig.environments.environment import Environment, native_environment
from agentdyno.rig.environments.frameworks import adapters_root
from agentdyno.rig.option_values import OptionError
from agentdyno.rig.options import BenchOptions


def native_spans(options: BenchOptions, adapter: AdapterFolder, variant: Variant) -> Environment | None:
    """The environment of the framework's instrumentation, ready; None when it is not asked for.

    Raises OptionError when the framework declares none, SetupError when it cannot be made.
    """
    if not options.native_spans:
        return None
    if variant.native is None:
        known = find_variants(adapters_root())
        others = ", ".join(name for name, (_, each) in known.items() if each.native is not None)
        there = f"These have: {others}." if others else "No framework here has."
        raise OptionError(f"NATIVE_SPANS=1: {variant.name} has no instrumentation of its own to switch on. {there}")
    environment = native_environment(adapter.path)
    ensure(environment)
    return environment


def refuse_native_spans(options: BenchOptions, command: str) -> None:
    """For a command that measures what an instrumentation would change. Raises OptionError."""
    if options.native_spans:
        raise OptionError(f"NATIVE_SPANS=1 is for `bench`: a {command} would measure the instrumentation too.")
