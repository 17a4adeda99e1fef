"""What a run on a cluster is asked to do: the options of a bench, what the release says, and the values that follow."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import ceil
from typing import Any

import msgspec

from agentdyno.cluster.release import Place
from agentdyno.cluster.watch import Known
from agentdyno.contract.adapter import AdapterFolder, Variant
from agentdyno.contract.campaign import PROBE
from agentdyno.contract.quantities import parse_rate_rps
from agentdyno.contract.run import ServerCounters
from agentdyno.contract.scenario import served_by
from agentdyno.contract.summary import BackendFacts
from agentdyno.rig.backend_options import MOCK, OPENAI, stated_settings
from agentdyno.rig.option_values import OptionError
from agentdyno.rig.options import PROFILES, BenchOptions, Words, read

# What the rest of a run takes at most beside its load: start, drain, fetching.
_MARGIN_S = 900.0
_KEEP_S = 7200.0
# Said at install, or of one machine only; with a run they would be passed over.
_AT_INSTALL = {"backend": "BACKEND", "model": "MODEL", "url": "URL"}
_LOCAL_ONLY = {"native_spans": "NATIVE_SPANS", "observe": "OBSERVE", "otlp": "OTLP"}


class State(msgspec.Struct, kw_only=True):
    """What must be known to go on with a run, or to fetch it: where it is, and how its pods were when it began.

    servers: pods of host, backend and recorder. load_seen: load pods that there have been. idle_ns: on the host's
    clock, when it was ready and had answered once. idle_wait_s: to be left alone after the load. rig_images: those of
    the rig that were compared with the sources here. nodes: their names, whose place is their number in the manifest.
    vllm_before: what the release's vLLM had served when the load began.
    """

    release: str
    namespace: str
    context: str | None
    run: str
    workers: int
    ready_timeout_s: float
    sut_port: int
    backend_port: int
    backend_kind: str
    recorded: bool
    sampled: bool
    servers: list[Known] = []
    load_seen: list[str] = []
    idle_ns: int | None = None
    drained_ns: int | None = None
    rested_ns: int | None = None
    idle_wait_s: float = 0.0
    rig_images: list[str] = []
    nodes: list[str] = []
    vllm_before: ServerCounters | None = None

    @property
    def place(self) -> Place:
        """Of its release."""
        return Place(self.release, self.namespace, self.context)


@dataclass(frozen=True, slots=True)
class Asked:
    """A run that is asked for. backend: its kind, model and URL as the release has them. heap_interval_s: between
    snapshots of the host's heap, in a run that is profiled.
    """

    options: BenchOptions
    adapter: AdapterFolder
    variant: Variant
    backend: BackendFacts
    release_values: dict[str, Any]
    heap_interval_s: float | None = None


def read_words(words: Words, values: dict[str, Any]) -> BenchOptions:
    """Check every option against the release's values. Raises OptionError.

    Without WORKERS there are as many as the rate needs by the measured cost of a request: `load.ratePerWorker`.
    """
    refuse(words, values)
    if not values["recorder"]["enabled"]:
        words = replace(words, traces="off")
    workers = words.workers or str(workers_for(words, values))
    options = read(replace(words, workers=workers, settings=None), environ={})
    kind, model = backend_kind(values), values["backend"]["model"]
    settings = stated_settings(words.settings, started_by=None if kind == OPENAI else "the chart")
    if kind == MOCK:
        return replace(options, model=model)
    # As a local run names it, so that no run with a language model has the hash of one with the mock.
    workload = msgspec.structs.replace(options.workload, served_by=served_by(kind, model, settings))
    return replace(options, model=model, backend=kind, workload=workload, settings=settings)


def backend_kind(values: dict[str, Any]) -> str:
    """The release's backend, by the word that local runs have for it."""
    kind: str = values["backend"]["kind"]
    return OPENAI if kind == "url" else kind


def refuse(words: Words, values: dict[str, Any]) -> None:
    """Raises OptionError for an option that would be passed over there, and for a release that no run measures."""
    at_install = "is chosen at install (backend.* of the chart)"
    for table, why in ((_AT_INSTALL, at_install), (_LOCAL_ONLY, "is for runs on one machine")):
        for field, name in table.items():
            if getattr(words, field) not in (None, "off", "0"):
                raise OptionError(f"{name} {why}; with TARGET=k8s leave it out.")
    if values["replicas"] > 1:
        raise OptionError(
            f"The release has replicas={values['replicas']}, and a run measures one pod of the host: more are for load "
            "by hand. To change it: helm upgrade ... --reuse-values --set replicas=1"
        )
    shaping = {"TTFT": words.ttft, "TPS": words.tps, "TOKENS": words.tokens, "SEATS": words.seats}
    given = [name for name, text in shaping.items() if text is not None]
    if values["backend"]["kind"] != "mock" and given:
        raise OptionError(f"{', '.join(given)} shape the mock LLM; the release has {values['backend']['kind']}.")
    if not values["recorder"]["enabled"] and words.traces not in (None, "off"):
        raise OptionError(
            "TRACES needs a recorder, and the release has none (recorder.enabled of the chart): TRACES=off."
        )


def workers_for(words: Words, values: dict[str, Any]) -> int:
    """Load workers that a rate needs, each given what it does with a third of a core."""
    text = words.rate if words.rate is not None else PROFILES.get(words.profile or "", PROFILES["default"]).rate
    try:
        return max(1, ceil(parse_rate_rps(text) / float(values["load"]["ratePerWorker"])))
    except ValueError:  # `read` says what is wrong with it
        return 1


def new_run_id() -> str:
    """A name that labels and Jobs can carry: 22 characters, later ones sort after earlier ones."""
    return f"{datetime.now(UTC).strftime('%Y%m%dt%H%M%S')}-{secrets.token_hex(3)}"


def run_values(asked: Asked, run: str) -> dict[str, Any]:
    """The chart's values that make this run, its load not yet begun."""
    options, plan = asked.options, asked.options.plan
    total_s = plan.warmup_s + plan.duration_s + plan.cooldown_s + plan.timeout_s + options.idle_wait_s
    timing = msgspec.to_builtins(options.workload.timing)
    keep_s = ceil(total_s + options.ready_timeout_s + _KEEP_S)
    return {
        "framework": asked.variant.name,
        "adapter": asked.adapter.path.name,
        "replicas": 1,
        "run": {
            "id": run,
            "scenario": plan.scenario,
            "seed": plan.seed,
            "admission": "off" if options.admission is None else options.admission,
            "traces": plan.trace_every > 0,
            "heapProfile": asked.heap_interval_s is not None,
            "compared": options.profile != PROBE,
            "timing": {name: value for name, value in timing.items() if value is not None},
        },
        "load": {
            "enabled": False,
            "rate": plan.rate,
            "warmup": f"{plan.warmup_s:g}s",
            "duration": f"{plan.duration_s:g}s",
            "cooldown": f"{plan.cooldown_s:g}s",
            "requestTimeout": f"{plan.timeout_s:g}s",
            "maxInFlight": plan.max_in_flight,
            "traceEvery": max(1, plan.trace_every),
            "workers": plan.workers,
            "keepRecordsSeconds": keep_s,
            "deadlineSeconds": keep_s + ceil(_MARGIN_S),
        },
    }


LOAD_ON: dict[str, Any] = {"load": {"enabled": True}}
LOAD_OFF: dict[str, Any] = {"load": {"enabled": False}}


def state_of(asked: Asked, place: Place, run: str) -> State:
    """Before anything has been started."""
    values = asked.release_values
    return State(
        release=place.release,
        namespace=place.namespace,
        context=place.context,
        run=run,
        workers=asked.options.plan.workers,
        ready_timeout_s=asked.options.ready_timeout_s,
        sut_port=int(values["sut"]["port"]),
        backend_port=int(values["backend"]["port"]),
        backend_kind=values["backend"]["kind"],
        recorded=bool(values["recorder"]["enabled"]) and asked.options.plan.trace_every > 0,
        sampled=bool(values["sut"]["sampler"]["enabled"]),
        idle_wait_s=asked.options.idle_wait_s,
    )
