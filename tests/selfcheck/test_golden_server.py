"""The golden server and the CPU clock: what the truth of the self-check rests on."""

import os
import time

import pytest

from agentdyno.contract.proof import Stage, order_id
from agentdyno.contract.run import Outcome
from agentdyno.contract.timing import parse
from agentdyno.record.cpu_clock import cpu_ns
from agentdyno.rig import cores
from agentdyno.selfcheck import stall, truth
from agentdyno.selfcheck.check import Setting
from agentdyno.selfcheck.driven import Driven, drive, plan


@pytest.fixture
def setting(tmp_path):
    return Setting(tmp_path, quick=True, cores=cores.plan())


def waits(run: Driven) -> dict[str, float]:
    return {it.order: (it.written_ns - it.received_ns) / 1e6 for it in run.truth.served}


@pytest.mark.e2e
def test_each_order_waits_its_own_known_delay_and_never_less(setting) -> None:
    run = drive(setting, "known", plan(50, 1.0, warmup_s=0.0, seed=3), ["--delays", "uniform:1:40", "--seed", "7"])
    assert (run.load.arrivals, run.load.ok) == (50, 50)
    delays = parse("uniform:1:40", seed=7)
    known = {order: delays.draw(order) for order in (order_id(3, Stage.MEASURE, n) for n in range(50))}
    found = waits(run)
    assert found.keys() == known.keys()
    assert all(found[order] >= known[order] - 0.001 for order in known)
    # What the load side publishes holds the delay, request by request, from the send and from the intended start.
    own = run.requests.done_ns - run.requests.sent_ns
    assert all(own[n] / 1e6 >= known[order_id(3, Stage.MEASURE, n)] for n in range(50))
    intended, service = truth.true_latencies(run, 3)
    assert service.p50 == sorted(found.values())[24]
    assert intended.p50 >= service.p50


@pytest.mark.e2e
def test_a_stall_is_on_record_in_the_open_loop_and_its_length_is_known(setting) -> None:
    run = drive(setting, "stall", plan(50, 2.0, warmup_s=0.0), ["--stall-after", "0.5", "--stall-for", "0.4"])
    begin_ns, end_ns = run.truth.stall_ns
    assert end_ns - begin_ns >= 400_000_000
    latencies, _ = stall.due_in_stall(run)
    assert len(latencies) in (20, 21) or end_ns - begin_ns > 410_000_000
    assert stall.recorded_share(run) == 1.0
    assert run.requests.outcome(Outcome.OK).all()
    # Were the waits not on record, the share would say so.
    run.requests.__dict__["done_ns"] = run.requests.sent_ns + 1_000_000
    assert stall.recorded_share(run) < 0.2


def test_the_cpu_clock_of_a_process_is_the_kernels_own() -> None:
    before = time.process_time_ns()
    seen = cpu_ns(os.getpid())
    assert before <= seen <= time.process_time_ns()
    with pytest.raises(OSError, match="process"):
        cpu_ns(2**22 + 1)
