from types import SimpleNamespace

import msgspec

from agentdyno.contract.run import ExitCode, LoadPlan
from agentdyno.load.coordination import GO, LEAD_NS, Coordinator, Done, Go, boot_id, start_ns

PLAN = LoadPlan(
    rate=1.0, warmup_s=0.0, duration_s=5.0, cooldown_s=0.0, timeout_s=1.0, max_in_flight=1, seed=1, scenario="chain"
)


def two_workers() -> tuple[Coordinator, list]:
    sent = []
    runner = SimpleNamespace(send_message=lambda kind, data, to: sent.append((kind, data, to)))
    coordinator = Coordinator(runner)
    coordinator.begin(msgspec.structs.replace(PLAN, workers=2))
    return coordinator, sent


def test_all_workers_are_told_to_go_once_all_are_ready_each_with_its_own_number():
    coordinator, sent = two_workers()
    coordinator.on_ready("a")
    coordinator.on_ready("a")
    assert sent == []
    coordinator.on_ready("b")
    coordinator.on_ready("a")
    coordinator.on_ready("latecomer")
    words = [(kind, msgspec.convert(data, Go), to) for kind, data, to in sent]
    assert [(kind, go.worker, to) for kind, go, to in words] == [(GO, 0, "a"), (GO, 1, "b")]
    assert len({(go.t0_ns, go.boot_id) for _, go, _ in words}) == 1


def test_a_run_is_over_when_all_workers_are_done():
    coordinator, _ = two_workers()
    for worker in ("a", "b"):
        coordinator.on_ready(worker)
    coordinator.on_done("a", Done(0, ""))
    assert not coordinator.over
    coordinator.on_done("b", Done(0, ""))
    assert coordinator.over
    coordinator.end()
    assert coordinator.exit_code == ExitCode.VALID


def test_the_first_failure_ends_the_run_and_is_the_one_that_is_told():
    coordinator, _ = two_workers()
    coordinator.on_done("a", Done(74, "The disk is full."))
    coordinator.on_done("b", Done(130, ""))
    coordinator.end()
    assert (coordinator.over, coordinator.exit_code, coordinator.message) == (True, 74, "The disk is full.")


def test_a_run_that_is_stopped_is_interrupted():
    coordinator, _ = two_workers()
    coordinator.end()
    assert coordinator.exit_code == ExitCode.INTERRUPTED


def test_what_comes_after_the_end_changes_nothing_and_the_next_run_starts_afresh():
    coordinator, sent = two_workers()
    for worker in ("a", "b"):
        coordinator.on_ready(worker)
        coordinator.on_done(worker, Done(0, ""))
    coordinator.end()
    coordinator.on_done("a", Done(130, ""))
    assert coordinator.exit_code == ExitCode.VALID
    coordinator.fail(ExitCode.USAGE, "refused")
    assert (coordinator.exit_code, coordinator.message) == (ExitCode.USAGE, "refused")
    coordinator.begin(PLAN)
    assert (coordinator.exit_code, coordinator.message, coordinator.over) == (ExitCode.VALID, "", False)
    coordinator.on_ready("a")
    assert len(sent) == 3


def test_t0_is_the_coordinators_on_its_own_clock_and_counts_from_the_word_on_another():
    go = Go(0, PLAN, "this boot", 12345)
    assert start_ns(go, came_ns=99, own_boot_id="this boot") == 12345
    assert start_ns(go, came_ns=99, own_boot_id="that boot") == 99 + LEAD_NS
    assert boot_id() == boot_id() != ""
