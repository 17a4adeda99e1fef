"""What the load side's processes open on this machine."""

from pathlib import Path

import pytest

from agentdyno.contract.proof import KEY_BYTES
from agentdyno.contract.run import LoadPlan
from agentdyno.rig import load as module
from agentdyno.rig.load import start_load
from agentdyno.rig.processes import Children, free_port
from tests.e2e.benches import wait_for
from tests.rig.listening import addresses


@pytest.mark.e2e
def test_several_workers_are_waited_for_on_loopback_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setattr(module, "free_port", lambda: port)
    plan = LoadPlan(
        rate=2.0,
        warmup_s=0.0,
        duration_s=60.0,
        cooldown_s=0.0,
        timeout_s=1.0,
        max_in_flight=10,
        seed=1,
        scenario="chain",
        workers=2,
    )
    (tmp_path / "records").mkdir()
    children = Children()
    nobody = "http://127.0.0.1:9"
    try:
        started = start_load(
            plan, nobody, tmp_path / "records", bytes(KEY_BYTES), None, lambda role: tmp_path / f"{role}.log", children
        )
        assert [child.role for child in started] == ["coordinator", "generator-0", "generator-1"]
        wait_for(lambda: addresses(port), "the coordinator's port")
        assert addresses(port) == {"0100007F"}
        # Both have found it: only then does either begin.
        wait_for(lambda: len(list((tmp_path / "records").glob("requests-*.jsonl"))) == 2, "both workers' records")
    finally:
        children.stop(3.0)
