"""The options of a campaign: what cannot be meant is one sentence, and nothing is begun."""

from pathlib import Path

import msgspec
import pytest

from agentdyno.analysis.comparison import compare_campaign
from agentdyno.cli import run
from agentdyno.contract.campaign import Campaign, Entry, LoadName, PlannedRun
from agentdyno.contract.errors import UserError
from agentdyno.contract.run import ExitCode, LoadPlan
from agentdyno.contract.scenario import Workload
from agentdyno.contract.summary import Framework, Summary
from agentdyno.record.campaign_folder import CampaignFolder
from agentdyno.record.manifest import Machine, machine_facts
from agentdyno.rig.campaign import identity as campaign_identity
from agentdyno.rig.campaign.compare import CampaignWords, Where, can_be_believed, compare
from agentdyno.rig.campaign.identity import differences, places_apart, rig_sha256, sources_sha256
from agentdyno.rig.options import BenchOptions, Words
from agentdyno.rig.task import Task
from tests.analysis.campaigns import CONTROL_AND_NULL, write_campaign
from tests.golden.run import manifest as golden_manifest

PLAN = LoadPlan(
    rate=200, warmup_s=1, duration_s=8, cooldown_s=1, timeout_s=10, max_in_flight=100, seed=1, scenario="chain"
)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no-such"], "There is no framework 'no-such'"),
        (["bare", "bare"], "bare#2"),
        (["bare", "--rounds", "0"], "ROUNDS='0'"),
        (["bare", "--time", "1m"], "too short"),
        (["bare", "--time", "x"], "TIME: 'x' is not a duration"),
        (["bare", "--time", "1h", "--duration", "10s"], "leave DURATION out"),
        (["bare", "--steady-rate", "0"], "STEADY_RATE"),
        (["bare", "--null", "yes"], "NULL='yes' is neither on nor off"),
        (["bare", "--curves", "x"], "CURVES='x' is neither on nor off"),
        (["bare", "--heap", "1"], "HEAP='1' is neither on nor off"),
        (["bare", "--rate", "-1"], "RATE"),
        (["bare", "--resume", "x"], "leave the other options out"),
        (["--resume", "x", "--rate", "5"], "leave the other options out"),
        (["--resume", "x", "--curves", "on"], "leave the other options out"),
        (["--resume", "x", "--heap", "off"], "leave the other options out"),
        (["--resume", "x", "--null", "off"], "leave the other options out"),
        (["--resume", "x"], "no campaign's folder"),
    ],
)
def test_what_cannot_be_meant(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["compare", *arguments]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


class Stop(UserError):
    """That is enough."""


@pytest.mark.frameworks
def test_each_of_its_runs_is_watched_and_waits_as_asked_and_a_resumed_campaigns_too(tmp_path: Path) -> None:
    asked: list[BenchOptions] = []

    def ask(task: Task, *_: object) -> tuple[Summary, ExitCode]:
        asked.append(task.options)
        raise Stop

    def words(observe: str, resume: Path | None = None) -> CampaignWords:
        out = None if resume else str(tmp_path / "campaigns")
        bench = Words(framework="", observe=observe, out=out, idle_wait=None if resume else "3s")
        return CampaignWords(names=[] if resume else ["bare"], resume=resume, bench=bench)

    with pytest.raises(Stop):
        compare(words(str(tmp_path / "first")), Where(ask))
    (folder,) = (tmp_path / "campaigns").iterdir()
    with pytest.raises(Stop):
        compare(words(str(tmp_path / "second"), folder), Where(ask))
    assert [options.observe for options in asked] == [tmp_path / "first", tmp_path / "second"]
    assert [options.idle_wait_s for options in asked] == [3.0, 3.0]


@pytest.mark.frameworks
def test_each_of_its_runs_is_on_record_with_the_stated_settings_and_a_resumed_campaigns_too(tmp_path: Path) -> None:
    asked: list[BenchOptions] = []

    def ask(task: Task, *_: object) -> tuple[Summary, ExitCode]:
        asked.append(task.options)
        raise Stop

    mine = {"backend": "vllm", "url": "http://gpu:1/v1", "model": "m", "settings": "--quantization  gptq"}
    bench = Words(framework="", out=str(tmp_path / "campaigns"), **mine)
    with pytest.raises(Stop):
        compare(CampaignWords(names=["bare"], bench=bench), Where(ask))
    (folder,) = (tmp_path / "campaigns").iterdir()
    with pytest.raises(Stop):
        compare(CampaignWords(names=[], resume=folder, bench=Words(framework="")), Where(ask))
    assert [options.settings for options in asked] == ["--quantization gptq"] * 2
    assert [options.workload.served_by for options in asked] == ["vllm m, stated: --quantization gptq"] * 2
    again = Words(framework="", settings="--quantization awq")
    with pytest.raises(UserError, match="RESUME goes on with a campaign as it was begun"):
        compare(CampaignWords(names=[], resume=folder, bench=again), Where(ask))


def campaign(monkeypatch: pytest.MonkeyPatch) -> Campaign:
    """One that this checkout could have begun; the environment of bare is taken to be ready."""
    then = Entry(
        label="bare",
        variant="bare",
        framework=Framework("bare", None, "default", "llm"),
        environment_sha256="e",
    )
    monkeypatch.setattr(campaign_identity, "entry", lambda label: then)
    workload = Workload()
    return Campaign(
        campaign_id="c",
        agentdyno="0",
        sources_sha256=sources_sha256(["bare"]),
        rig_environment_sha256=rig_sha256(),
        started_utc="2026-01-01T00:00:00+00:00",
        workload=workload,
        workload_hash=workload.hash(),
        asked=PLAN,
        traces="all",
        admission=64,
        model="m",
        ready_timeout_s=10,
        seed=1,
        rounds=3,
        entries=[then],
    )


def test_the_checkout_that_began_it_may_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert differences(campaign(monkeypatch)) == []


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("schema_version", 99, "schema 99"),
        ("workload_hash", "0" * 16, "workload 0000"),
        ("rig_environment_sha256", "x", "rig's environment"),
        ("sources_sha256", "x", "program or an adapter has changed"),
        (
            "entries",
            [
                Entry(
                    label="bare",
                    variant="bare",
                    framework=Framework("bare", None, "default", "llm"),
                    environment_sha256="other",
                )
            ],
            "environment of bare",
        ),
        (
            "entries",
            [
                Entry(
                    label="bare",
                    variant="bare",
                    framework=Framework("bare", "1.0", "tuned", "llm"),
                    environment_sha256="e",
                )
            ],
            "bare was bare 1.0 (tuned) and is bare without a version (default)",
        ),
    ],
)
def test_what_differs_is_said(monkeypatch: pytest.MonkeyPatch, field: str, value: object, said: str) -> None:
    then = campaign(monkeypatch)
    setattr(then, field, value)
    found = differences(then)
    assert len(found) == 1
    assert said in found[0]


def test_a_campaign_goes_on_where_it_was_begun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    then = campaign(monkeypatch)
    folder = CampaignFolder(tmp_path)
    assert places_apart(folder, then, None) == []
    assert places_apart(folder, then, {"kind": "vllm", "model": "qwen"}) == [
        f"It was begun with the backend {then.backend} {then.model}; the release has vllm qwen."
    ]
    then.runs = [PlannedRun(number=1, round=1, load=LoadName.STEADY, label="bare", run_id="r")]
    folder.run("r").mkdir(parents=True)

    def kept(machine: Machine, cluster: dict[str, object] | None = None) -> None:
        manifest = msgspec.structs.replace(golden_manifest(), machine=machine, cluster=cluster)
        (folder.run("r") / "manifest.json").write_bytes(msgspec.json.encode(manifest))

    here = machine_facts()
    kept(msgspec.structs.replace(here, kernel="another", memory_bytes=1))
    assert places_apart(folder, then, None) == []
    assert places_apart(folder, then, golden_manifest().backend) == ["Its runs were measured on one machine."]
    kept(msgspec.structs.replace(here, cpu_model="Abacus", cores_usable=64))
    assert places_apart(folder, then, None) == [
        f"Its runs were measured with the processor Abacus; here it is {here.cpu_model}.",
        f"Its runs were measured with the cores 64; here it is {here.cores_usable}.",
    ]
    kept(here, {"run": "r"})
    assert places_apart(folder, then, golden_manifest().backend) == []
    assert places_apart(folder, then, None) == ["Its runs were measured on a cluster."]


def test_a_changed_adapter_is_another_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "adapters" / "mine"
    folder.mkdir(parents=True)
    (folder / "adapter.py").write_text("one")
    monkeypatch.setattr(campaign_identity, "resolve", lambda name: (type("A", (), {"path": folder})(), None))
    before = sources_sha256(["mine"])
    assert sources_sha256(["mine"]) == before
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "adapter.pyc").write_bytes(b"x")
    assert sources_sha256(["mine"]) == before
    (folder / "adapter.py").write_text("two")
    assert sources_sha256(["mine"]) != before


def test_campaign_json_is_read_back_as_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = CampaignFolder.create(tmp_path)
    then = campaign(monkeypatch)
    folder.write(then)
    assert folder.read() == then


def test_a_comparison_is_to_be_believed_when_everyone_counts_and_the_null_test_finds_nothing(tmp_path: Path) -> None:
    good = compare_campaign(write_campaign(tmp_path / "good", CONTROL_AND_NULL, requests=100))
    assert good.null_test is not None
    assert good.null_test.passed
    assert can_be_believed(good)
    null = msgspec.structs.replace(good.null_test, passed=False)
    assert not can_be_believed(msgspec.structs.replace(good, null_test=null))
    assert can_be_believed(msgspec.structs.replace(good, null_test=None))
    assert not can_be_believed(msgspec.structs.replace(good, complete=False))


def test_a_comparison_without_a_run_of_somebody_is_not_to_be_believed(tmp_path: Path) -> None:
    label = CONTROL_AND_NULL[0].label
    lost = [(number, LoadName.STANDARD, label) for number in (1, 2, 3)]
    found = compare_campaign(write_campaign(tmp_path, CONTROL_AND_NULL, requests=100, invalid=lost))
    assert found.complete
    assert not can_be_believed(found)
