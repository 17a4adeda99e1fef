"""A campaign whose runs take place on a cluster: the rounds, their order, the report are those of a local one."""

from __future__ import annotations

from dataclasses import replace

from agentdyno.cluster.bench import asked_of, backend_of, prepare
from agentdyno.cluster.kube import Kube
from agentdyno.cluster.release import Place, Release
from agentdyno.cluster.settings import read_words, refuse
from agentdyno.contract.run import ExitCode
from agentdyno.contract.summary import Summary
from agentdyno.rig.campaign.compare import CampaignWords, Where
from agentdyno.rig.campaign.compare import compare as compare_anywhere
from agentdyno.rig.option_values import OptionError
from agentdyno.rig.options import BenchOptions, Words
from agentdyno.rig.snapshots import HeapProfiling
from agentdyno.rig.task import Task

TARGET = "TARGET=k8s "


def compare(words: CampaignWords, place: Place) -> ExitCode:
    """See rig.campaign.compare. The release's backend is everybody's; capacity searches are local.

    Raises UserError.
    """
    if words.curves not in (None, "off"):
        raise OptionError("CURVES is for runs on one machine; with TARGET=k8s leave it out.")
    kube, release = Kube.connect(place.namespace, place.context), Release(place)
    values = release.values()  # as they are before the first run, each of which changes them
    refuse(words.bench, values)  # also with RESUME, which reads no other option of a run
    if words.resume is None:
        words = replace(words, heap=words.heap or "off")

    def understand(bench: Words) -> BenchOptions:
        return read_words(bench, values)

    def there(task: Task, heap: HeapProfiling | None = None) -> tuple[Summary, ExitCode]:
        interval_s = None if heap is None else heap.interval_s
        asked = asked_of(task.options, task.adapter, task.variant, release.values(), interval_s)
        return prepare(asked, place, kube, release, task.interruption).measure(task.folder, task.interruption)

    return compare_anywhere(words, Where(there, understand, TARGET, backend_of(values)))
