"""A generator that the machine did not let run, between the moment at which it fires and that at which it sends."""

import json
import time
from pathlib import Path

import gevent

from agentdyno.contract.run import LoadPlan
from agentdyno.load.connection import Answer, Target
from agentdyno.load.generator import Generator
from agentdyno.load.records import Records

PLAN = LoadPlan(
    rate=100, warmup_s=0.1, duration_s=0.5, cooldown_s=0.1, timeout_s=5, max_in_flight=100, seed=1, scenario="chain"
)


class Standstill:
    """Answers at once; while a request is sent, now and then, nothing else in the process runs."""

    target = Target.parse("http://127.0.0.1:1", "/agent/invoke")

    def __init__(self) -> None:
        self._sent = 0

    def exchange(self, request: bytes) -> Answer:
        self._sent += 1
        if self._sent % 10 == 5:
            time.sleep(0.08)
        gevent.sleep(0.001)
        return Answer(500, b"")

    def close(self) -> None:
        pass


def test_in_flight_begins_when_a_request_is_sent_and_not_when_it_is_fired(tmp_path: Path) -> None:
    """The eight that come due while it stands still are fired together, and the last of them are sent much later."""
    records = Records(tmp_path, 0)
    generator = Generator(PLAN, 0, Standstill(), b"k" * 32, records)  # type: ignore[arg-type]
    assert generator.run(time.monotonic_ns()) == 0
    end = json.loads((tmp_path / "end-0.json").read_bytes())
    requests = [json.loads(line) for line in (tmp_path / "requests-0.jsonl").read_bytes().splitlines()]
    assert len(requests) == 70
    window = end["measure_start_ns"], end["measure_end_ns"]
    recorded_ns = sum(max(0, min(it["done_ns"], window[1]) - max(it["sent_ns"], window[0])) for it in requests)
    assert max(it["sent_ns"] - it["intended_ns"] for it in requests) > 40_000_000
    assert round(end["in_flight_area_s"] * 1e9) == recorded_ns
