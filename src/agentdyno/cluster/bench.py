"""What a person asks of a cluster: install, a bench, to fetch a run, uninstall."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from agentdyno.cluster.kube import ApiLost, Kube
from agentdyno.cluster.objects import INSTANCE
from agentdyno.cluster.preparation import held_up, prepare_manifest, roll_in
from agentdyno.cluster.release import HelmError, Place, Release
from agentdyno.cluster.run import STATE_FILE, ClusterRun
from agentdyno.cluster.settings import Asked, State, backend_kind, new_run_id, read_words, state_of
from agentdyno.contract.adapter import AdapterFolder, Variant
from agentdyno.contract.errors import UserError
from agentdyno.contract.proof import KEY_VARIABLE, ProofError, key_from_environment
from agentdyno.contract.run import ExitCode
from agentdyno.contract.summary import BackendFacts, Summary
from agentdyno.record.folder import RunFolder
from agentdyno.record.manifest import Manifest
from agentdyno.report.terminal import print_summary
from agentdyno.rig.backend_options import MOCK, OPENAI, VLLM
from agentdyno.rig.environments.building import say
from agentdyno.rig.environments.frameworks import resolve
from agentdyno.rig.interruption import Interrupted, Interruption
from agentdyno.rig.options import BenchOptions, Words
from agentdyno.rig.profile import show as show_profile
from agentdyno.rig.servers import FirstRequest

_SECRET_OPTIONS = ("--api-key", "--hf-token", "--watermark-config")  # those that vLLM's own log leaves out, too


def install(place: Place, values: Sequence[Path]) -> ExitCode:
    """The chart with these values files; what is there already is brought to them. Raises HelmError, KubeError."""
    kube, release = Kube.connect(place.namespace, place.context), Release(place)
    wait_s = release.start_s(values)
    say(f"installing {place.release} in the namespace {place.namespace}; it has {wait_s / 60:.0f} minutes to get ready")
    try:
        notes = release.install(values, wait_s)
    except HelmError as error:
        raise HelmError(f"{error}{_what_holds(kube, place)}") from error
    say(f"installed\n{notes}")
    return ExitCode.VALID


def _what_holds(kube: Kube, place: Place) -> str:
    try:
        return held_up(kube.pods({INSTANCE: place.release}))
    except (UserError, ApiLost):  # helm has said what there is to say
        return ""


def uninstall(place: Place) -> ExitCode:
    """All of it, records that were not fetched too. Raises HelmError."""
    Release(place).remove()
    say(f"{place.release} is gone from the namespace {place.namespace}")
    return ExitCode.VALID


def bench(words: Words, place: Place) -> ExitCode:
    """One run; prints the summary, and the run folder's path as the last line on stdout. Raises UserError."""
    kube, release = Kube.connect(place.namespace, place.context), Release(place)
    asked = ask(words, release)
    with Interruption() as interruption:
        prepared = prepare(asked, place, kube, release, interruption)
        folder = RunFolder.create(asked.options.out, asked.variant.name)
        summary, code = prepared.measure(folder, interruption)
    return _show(folder, summary, code)


def ask(words: Words, release: Release) -> Asked:
    """What is asked of a release. Raises OptionError, AdapterError, HelmError."""
    adapter, variant = resolve(words.framework)
    values = release.values()
    return asked_of(read_words(words, values), adapter, variant, values)


def asked_of(
    options: BenchOptions,
    adapter: AdapterFolder,
    variant: Variant,
    values: dict[str, Any],
    heap_interval_s: float | None = None,
) -> Asked:
    """The same with options that are read already. heap_interval_s: between snapshots, in a run that is profiled.

    Raises UserError for a framework that the chart has no image of.
    """
    if variant.command is not None:
        raise UserError(f"{variant.name} is a program of its own, for which the chart has no image: measure it here.")
    about = backend_of(values)
    if about["kind"] != MOCK:
        about["served_by"] = options.workload.served_by
    if options.settings is not None:
        about["stated"] = options.settings
    return Asked(options, adapter, variant, about, values, heap_interval_s)


def backend_of(values: dict[str, Any]) -> BackendFacts:
    """The release's backend, and of a vLLM what decides how it answers."""
    backend, kind = values["backend"], backend_kind(values)
    address = backend["url"]["address"] if kind == OPENAI else None
    about: BackendFacts = {"kind": kind, "model": backend["model"], "url": address or None}
    if kind == VLLM:
        about |= {"weights": backend["vllm"]["model"], "revision": backend["vllm"]["revision"] or None}
        about["settings"] = vllm_settings(backend["vllm"])
    return about


def vllm_settings(values: dict[str, Any]) -> str:
    """What else decides whether its tool calls succeed, by the chart's values."""
    words = [f"--max-model-len={int(values['maxModelLen'])}", f"--tool-call-parser={values['toolCallParser']}"]
    return " ".join([*words, *_without_secrets(str(word) for word in values["extraArgs"])])


def _without_secrets(words: Iterable[str]) -> Iterator[str]:
    """vLLM's words without its secret options and all that these are given, which may be several words."""
    secret = False
    for word in words:
        if word.startswith("--"):
            option = word.partition("=")[0].replace("_", "-")
            # It also takes the beginning of a name, where no other option begins like that.
            secret = option != "--" and any(name.startswith(option) for name in _SECRET_OPTIONS)
        if not secret:
            yield word


@dataclass(frozen=True, slots=True)
class Prepared:
    """A framework that is rolled in and ready."""

    asked: Asked
    state: State
    manifest: Manifest
    key: bytes
    release: Release
    kube: Kube

    def measure(self, folder: RunFolder, interruption: Interruption) -> tuple[Summary, ExitCode]:
        """Put the load on and bring the records into the folder."""
        self.manifest.run_id = folder.run_id
        run = ClusterRun(folder, self.manifest, self.state, self.release, self.kube, interruption)
        return run.run(FirstRequest.of(self.asked.options), self.key)


def prepare(asked: Asked, place: Place, kube: Kube, release: Release, interruption: Interruption) -> Prepared:
    """Roll the framework in. Raises UserError, KeyboardInterrupt for what came before anything was measured."""
    values = asked.release_values
    if values["load"]["enabled"]:  # two runs would share one host
        raise UserError(
            f"The release is in the middle of run {values['run']['id']}, or its records have not been fetched: "
            "agentdyno fetch RUN. To drop them: helm upgrade ... --reuse-values --set load.enabled=false"
        )
    state = state_of(asked, place, new_run_id())
    secret = values["proof"]["existingSecret"] or place.name("proof")
    try:
        interruption.listen()
        pods = roll_in(release, kube, asked, state)
        key = key_from_environment({KEY_VARIABLE: kube.secret(str(secret), "proof-key").decode("ascii", "replace")})
        manifest = prepare_manifest(kube, pods, asked, state)
    except Interrupted as error:
        raise KeyboardInterrupt from error
    except ProofError as error:
        raise UserError(f"The Secret {secret} holds no proof key. {error}") from error
    except ApiLost as error:
        raise UserError(f"{error} Nothing was measured.") from error
    return Prepared(asked, state, manifest, key, release, kube)


def fetch(name: str, runs: Path) -> ExitCode:
    """Bring here what a run left in its pods, following it first where it still goes on; prints as `bench` does.

    name: the run's folder, or the beginning of its name under `runs`. Raises UserError.
    """
    folder = RunFolder(_folder(name, runs))
    file = folder.raw / STATE_FILE
    if not file.exists():
        raise UserError(f"{folder.path} is no run of a cluster, or all of it is here already.")
    state = msgspec.json.decode(file.read_bytes(), type=State)
    manifest = msgspec.json.decode((folder.path / "manifest.json").read_bytes(), type=Manifest)
    kube = Kube.connect(state.namespace, state.context)
    with Interruption() as interruption:
        run = ClusterRun(folder, manifest, state, Release(state.place), kube, interruption)
        summary, code = run.resume()
    if manifest.heap_profile is not None:
        packages = tuple(manifest.heap_profile["framework_packages"])
        show_profile(folder, None, summary, packages)
        return code
    return _show(folder, summary, code)


def _folder(name: str, runs: Path) -> Path:
    if (Path(name) / "manifest.json").exists():
        return Path(name)
    found = sorted(path.parent for path in runs.glob(f"{name}*/manifest.json"))
    if len(found) != 1:
        there = f"there are {', '.join(path.name for path in found)}" if found else "there is none"
        raise UserError(f"No single run in {runs} whose name begins with {name!r}: {there}.")
    return found[0]


def _show(folder: RunFolder, summary: Summary, code: ExitCode) -> ExitCode:
    print_summary(summary, Console(file=sys.stdout, soft_wrap=not sys.stdout.isatty()))
    sys.stdout.write(f"{folder.path}\n")
    return code
