"""Real campaigns: every run of the plan measured, what was interrupted resumed, what differs refused."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from agentdyno.contract.campaign import Campaign, CampaignStatus, LoadName
from agentdyno.record.campaign_folder import CampaignFolder
from agentdyno.rig.environments.environment import ROOT
from tests.e2e.benches import PROGRAM, Bench, Benches, environment, processes_of, wait_for

pytestmark = pytest.mark.e2e
COMPARE = (str(PROGRAM), "compare")
TINY = ("--rate", "20", "--warmup", "500ms", "--duration", "2s", "--cooldown", "0s", "--timeout", "3s")


def folder_of(bench: Bench) -> CampaignFolder:
    return CampaignFolder(
        wait_for(lambda: bench.out.is_dir() and list(bench.out.glob("*/campaign.json")), "it")[0].parent
    )


def measured(folder: CampaignFolder) -> int:
    return sum(run.run_id is not None for run in folder.read().runs)


def resume(folder: CampaignFolder) -> subprocess.CompletedProcess[str]:
    command = [*COMPARE, "--resume", str(folder.path)]
    return subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=300, check=False
    )


def check_whole(campaign: Campaign, folder: CampaignFolder) -> None:
    assert campaign.status is CampaignStatus.FINISHED
    assert all(run.run_id is not None for run in campaign.runs)
    known = {run.run_id for run in campaign.runs} | {probe.run_id for probe in campaign.probes}
    known |= {attempt for run in campaign.runs for attempt in run.attempts} | set(campaign.heap_runs.values())
    assert {path.name for path in folder.runs.iterdir()} == known


@pytest.fixture(scope="module")
def under_way(module_benches: Benches) -> Bench:
    """A whole campaign, which goes on while another is interrupted and resumed: both wait most of their time."""
    return module_benches.start("bare", "--rounds", "1", *TINY, program=COMPARE)


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("under_way")
def test_what_was_interrupted_and_killed_is_resumed(benches: Benches) -> None:
    options = ("--rounds", "1", "--steady-rate", "10", "--null", "off", "--heap", "off")
    bench = benches.start("lightagent", *options, *TINY, program=COMPARE)
    folder = folder_of(bench)
    wait_for(lambda: measured(folder) == 1, "the first run", 100)
    bench.child("generator")
    bench.interrupt(signal.SIGINT)
    assert bench.process.wait(60) == 130
    assert bench.end().left == {}
    begun = folder.read()
    assert begun.status is CampaignStatus.INTERRUPTED
    assert measured(folder) == 1
    assert sum(len(run.attempts) for run in begun.runs) == 1

    killed = subprocess.Popen([*COMPARE, "--resume", str(folder.path)], cwd=ROOT, env=environment())
    try:
        wait_for(lambda: measured(folder) == 2, "the second run", 100)
    finally:
        killed.kill()
        killed.wait()
    for pid in processes_of(folder.path):
        os.kill(pid, signal.SIGKILL)
    assert folder.read().status is CampaignStatus.RUNNING

    done = resume(folder)
    assert done.returncode == 0, done.stderr
    campaign = folder.read()
    check_whole(campaign, folder)
    assert {run.run_id for run in begun.runs if run.run_id} <= {run.run_id for run in campaign.runs}
    assert [(run.load, run.label) for run in campaign.runs[:4]] == [(run.load, run.label) for run in begun.runs]

    campaign.sources_sha256 = "another program"
    folder.write(campaign)
    done = resume(folder)
    assert done.returncode == 2
    assert "has changed since" in done.stderr


@pytest.mark.timeout(600)
def test_a_campaign_from_probe_to_heap_profiles(under_way: Bench) -> None:
    ended = under_way.end(400)
    assert ended.code == 0, ended.err
    folder = CampaignFolder(Path(ended.out.splitlines()[-1]))
    campaign = folder.read()
    check_whole(campaign, folder)
    assert [entry.label for entry in campaign.entries] == ["bare", "bare#2"]
    assert campaign.null_pair == ("bare", "bare#2")
    assert campaign.plans[LoadName.STANDARD].rate == 20
    # Half of what the control answered, which is all of it on a machine that has the time.
    assert 5 < campaign.plans[LoadName.STEADY].rate <= 10
    firsts = [run for run in campaign.runs if run.repeat_of is None]
    assert {(run.load, run.label) for run in firsts} == {
        (load, label) for load in LoadName for label in ("bare", "bare#2")
    }
    assert (folder.run(campaign.heap_runs["bare"]) / "heap" / "top10.json").is_file()
    assert "bare#2" not in campaign.heap_runs
