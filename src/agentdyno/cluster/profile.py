"""`make profile TARGET=k8s`: the same load as a bench's there, in a run of its own with the heap profiler in the host.

The profiler comes from an image of its own, which the chart mounts into the host's container where `run.heapProfile` is
set; the host's image is that of a timed run.
"""

from __future__ import annotations

from dataclasses import replace

from agentdyno.cluster.bench import ask, prepare
from agentdyno.cluster.kube import Kube
from agentdyno.cluster.release import Place, Release
from agentdyno.cluster.settings import Asked
from agentdyno.contract.run import ExitCode
from agentdyno.contract.summary import Summary
from agentdyno.record.folder import RunFolder
from agentdyno.rig.interruption import Interruption
from agentdyno.rig.options import Words
from agentdyno.rig.profile import plain_first, show, times


def profile(words: Words, place: Place, interval: str, plain: str) -> ExitCode:
    """See rig.profile, whose options and report it has. Raises UserError."""
    kube, release = Kube.connect(place.namespace, place.context), Release(place)
    asked = ask(words, release)
    interval_s, plain_s = times(interval, plain, asked.options)
    before: Summary | None = None
    if plain_s is not None:
        shorter = replace(asked, options=plain_first(asked.options, plain_s))
        before, code, *_ = _run(shorter, place, kube, release)
        if code is ExitCode.INTERRUPTED:
            return code
    summary, code, folder, packages = _run(replace(asked, heap_interval_s=interval_s), place, kube, release)
    show(folder, before, summary, packages)
    return code


def _run(
    asked: Asked, place: Place, kube: Kube, release: Release
) -> tuple[Summary, ExitCode, RunFolder, tuple[str, ...]]:
    """With the framework's packages, as the host's image has them."""
    with Interruption() as interruption:
        prepared = prepare(asked, place, kube, release, interruption)
        folder = RunFolder.create(asked.options.out, asked.variant.name)
        summary, code = prepared.measure(folder, interruption)
    about = prepared.manifest.heap_profile
    return summary, code, folder, () if about is None else tuple(about["framework_packages"])
