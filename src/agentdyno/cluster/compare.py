"""A campaign whose runs take place on a cluster: the rounds, their order, the report are those of a local one."""

from __future__ import annotations

from dataclasses import replace

from agentdyno.cluster.bench import asked_of, prepare
from agentdyno.cluster.kube import Kube
from agentdyno.cluster.release import Place, Release
from agentdyno.cluster.settings import refuse, workers_for
from agentdyno.contract.adapter import AdapterFolder, Variant
from agentdyno.contract.run import ExitCode
from agentdyno.contract.summary import Summary
from agentdyno.record.folder import RunFolder
from agentdyno.rig.compare import CampaignWords
from agentdyno.rig.compare import compare as compare_anywhere
from agentdyno.rig.interruption import Interruption
from agentdyno.rig.options import BenchOptions, OptionError
from agentdyno.rig.snapshots import HeapProfiling

TARGET = "TARGET=k8s "


def compare(words: CampaignWords, place: Place) -> ExitCode:
    """See rig.compare. The release's backend is everybody's; heap profiles and capacity searches are local.

    Raises UserError.
    """
    for name, word in (("HEAP", words.heap), ("CURVES", words.curves)):
        if word != "off":
            raise OptionError(f"{name} is for runs on one machine; with TARGET=k8s leave it out.")
    kube, release = Kube.connect(place.namespace, place.context), Release(place)
    if words.resume is None:
        values = release.values()
        refuse(words.bench, values)
        workers = words.bench.workers or str(workers_for(words.bench, values))
        words = replace(words, bench=replace(words.bench, workers=workers, model=values["backend"]["model"]))

    def there(
        options: BenchOptions,
        adapter: AdapterFolder,
        variant: Variant,
        folder: RunFolder,
        interruption: Interruption,
        heap: HeapProfiling | None = None,
    ) -> tuple[Summary, ExitCode]:
        asked = asked_of(options, adapter, variant, release.values())
        return prepare(asked, place, kube, release, interruption).measure(folder, interruption)

    return compare_anywhere(words, there, TARGET)
