"""A campaign on a cluster is the local one with its runs elsewhere. Its environments are those of the checkout."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from agentdyno.cluster.compare import compare
from agentdyno.contract.campaign import Campaign
from agentdyno.contract.run import ExitCode
from agentdyno.contract.summary import Framework
from agentdyno.rig.campaign import compare as local
from agentdyno.rig.campaign.compare import CampaignWords
from agentdyno.rig.campaign.identity import Entry
from agentdyno.rig.campaign.plan import variant_of
from agentdyno.rig.option_values import OptionError
from agentdyno.rig.options import Words
from tests.cluster.fake_cluster import FakeCluster
from tests.cluster.test_bench import PLACE, with_vllm, words

ENTRY = Entry(
    label="", variant="", framework=Framework("", None, "default", "llm"), environment_sha256="", distributions=1
)


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CampaignWords:
    """Two entries, one round, a rate that is given. What a checkout without environments cannot say is put in."""

    def entry(label: str) -> Entry:
        name = variant_of(label)
        framework = msgspec.structs.replace(ENTRY.framework, name=name)
        return msgspec.structs.replace(ENTRY, label=label, variant=name, framework=framework)

    monkeypatch.setattr(local, "entry", entry)
    monkeypatch.setattr(local, "rig_sha256", lambda: "rig")
    bench = replace(words(tmp_path / "campaigns"), framework="", workers=None, duration="1s")
    options = {"rounds": "1", "steady_rate": "10", "null": "off", "heap": "off"}
    return CampaignWords(names=["bare", "lightagent-llm"], bench=bench, **options)


def test_the_runs_of_a_campaign_take_place_there(cluster: FakeCluster, tmp_path: Path, asked: CampaignWords) -> None:
    compare(asked, PLACE)
    (folder,) = (tmp_path / "campaigns").iterdir()
    campaign = msgspec.json.decode((folder / "campaign.json").read_bytes(), type=Campaign)
    assert sorted((run.label, run.load.value) for run in campaign.runs) == [
        (label, load) for label in ("bare", "lightagent-llm") for load in ("standard", "steady")
    ]
    assert all(run.run_id for run in campaign.runs)
    assert sorted(cluster.rolled_in) == ["bare", "bare", "lightagent-llm", "lightagent-llm"]
    assert campaign.model == "agentdyno-mock"
    assert (folder / "report.html").exists()


def test_a_probe_is_compared_with_nothing_there(cluster: FakeCluster, asked: CampaignWords) -> None:
    compare(replace(asked, names=["bare"], steady_rate=None), PLACE)
    probes = cluster.rolled_in[:-2]
    assert probes
    assert cluster.compared == [False] * len(probes) + [True, True]


def test_a_campaign_says_which_backend_it_was(cluster: FakeCluster, tmp_path: Path, asked: CampaignWords) -> None:
    with_vllm(cluster)
    compare(replace(asked, names=["bare"]), PLACE)
    (folder,) = (tmp_path / "campaigns").iterdir()
    campaign = msgspec.json.decode((folder / "campaign.json").read_bytes(), type=Campaign)
    assert (campaign.backend, campaign.model, campaign.workload.served_by) == ("vllm", "qwen", "vllm qwen")
    manifests = [json.loads(file.read_text()) for file in folder.glob("runs/*/manifest.json")]
    assert {one["workload_hash"] for one in manifests} == {campaign.workload_hash}
    assert {one["backend"]["kind"] for one in manifests} == {"vllm"}


def test_what_is_local_alone_is_refused(cluster: FakeCluster, asked: CampaignWords) -> None:
    with pytest.raises(OptionError, match="CURVES is for runs on one machine"):
        compare(replace(asked, curves="on"), PLACE)
    with pytest.raises(OptionError, match="NATIVE_SPANS is for runs on one machine"):
        compare(replace(asked, bench=replace(asked.bench, native_spans="1")), PLACE)
    with pytest.raises(OptionError, match="BACKEND is chosen at install"):
        compare(replace(asked, bench=replace(asked.bench, backend="http://llm/v1")), PLACE)
    with pytest.raises(OptionError, match="OBSERVE is for runs on one machine"):
        compare(replace(asked, names=[], resume=Path("x"), bench=Words(framework="", observe="1")), PLACE)


def test_a_campaign_is_not_begun_there_and_ended_here(
    cluster: FakeCluster, tmp_path: Path, asked: CampaignWords, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "differences", lambda campaign: [])
    compare(replace(asked, names=["bare"]), PLACE)
    (folder,) = (tmp_path / "campaigns").iterdir()
    resumed = CampaignWords(names=[], resume=folder, bench=Words(framework=""))
    with pytest.raises(OptionError, match="Its runs were measured on a cluster"):
        local.compare(resumed)
    values = dict(cluster.given)
    for backend in ({"kind": "vllm", "model": "agentdyno-mock"}, {"model": "other"}):
        cluster.set({**values, "backend": backend})
        with pytest.raises(OptionError, match="It was begun with the backend mock agentdyno-mock; the release has "):
            compare(resumed, PLACE)
    cluster.set(values)
    for file in folder.glob("runs/*/manifest.json"):
        file.write_text(json.dumps({**json.loads(file.read_text()), "cluster": None}))
    with pytest.raises(OptionError, match="Its runs were measured on one machine"):
        compare(resumed, PLACE)


def test_a_campaign_is_not_begun_with_one_vllm_and_ended_with_another(
    cluster: FakeCluster, tmp_path: Path, asked: CampaignWords, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "differences", lambda campaign: [])
    with_vllm(cluster)
    compare(replace(asked, names=["bare"]), PLACE)
    (folder,) = (tmp_path / "campaigns").iterdir()
    resumed = CampaignWords(names=[], resume=folder, bench=Words(framework=""))
    assert compare(resumed, PLACE) in (ExitCode.VALID, ExitCode.INVALID_RUN)
    parser = cluster.values["backend"]["vllm"] | {"toolCallParser": "pythonic"}
    cluster.set({**cluster.given, "backend": {**cluster.given["backend"], "vllm": parser}})
    with pytest.raises(OptionError, match=r"parser=hermes .* the release has .* --tool-call-parser=pythonic"):
        compare(resumed, PLACE)
