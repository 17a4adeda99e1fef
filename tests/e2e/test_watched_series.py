"""A search and a sweep are watched as one run, from load to load, by a Prometheus and by `agentdyno top`. What they
show is compared with nothing, and neither is what a soak shows.
"""

import json
import re
import signal
from functools import partial
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agentdyno.rig.processes import fetch
from agentdyno.rig.top import top
from tests.e2e.benches import PROGRAM, Benches, wait_for

pytestmark = pytest.mark.e2e
# Loads of 10 s or so, which can be looked at in peace. An objective that is met by few arrivals; and a single user, who
# leaves no more connections than there were, for whose end the next tier would wait.
SEARCH = ("capacity", "--slo", "p95<2s", "--rate", "20", "--max-rate", "40", "--step", "8s")
SWEEP = ("sweep", "--concurrency", "1,2", "--requests", "40", "--ttft", "60")


def told(observed: Path) -> dict[str, str]:
    """By role where a Prometheus is told to look, and by what name."""
    for file in observed.glob("*.json"):
        entries = json.loads(file.read_text())
        assert {(entry["labels"]["run"], entry["labels"]["compared"]) for entry in entries} == {(file.stem, "no")}
        return {entry["labels"]["role"]: entry["targets"][0] for entry in entries}
    return {}


def answered(address: str) -> float:
    try:
        text = fetch(f"http://{address}/metrics", 5.0).decode()
    except OSError:
        return 0.0  # it has not begun, or is over
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "agentdyno_load_requests_total" and sample.labels["outcome"] == "ok"
    )


@pytest.mark.parametrize("words", [SEARCH, SWEEP], ids=lambda words: words[0])
def test_each_load_is_told_of_and_untold(
    benches: Benches, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    command, *options = words
    observed = tmp_path / "observed"
    bench = benches.start("bare", *options, "--observe", str(observed), program=(str(PROGRAM), command))
    for number in (1, 2):
        address = wait_for(lambda: told(observed).get("load"), "a load that is told of")
        assert told(observed).keys() == {"rig", "host", "backend", "load"}
        wait_for(partial(answered, address), "answers in the metrics")
        assert top(None, [bench.out], every_s=1.0, once=True) == 0
        looked = capsys.readouterr().out
        assert re.search(r" \d+\.\d/s ok, no errors; in flight", looked), looked
        if number == 1:
            wait_for(lambda: "load" not in told(observed), "the load's end")
    bench.interrupt(signal.SIGINT)  # the rest is more of the same
    ended = bench.end()
    assert ended.code == 130
    assert list(observed.iterdir()) == []
    ended.check_clean()


def test_a_soak_is_told_of_as_compared_with_nothing(benches: Benches, tmp_path: Path) -> None:
    observed = tmp_path / "observed"
    load = ("--rate", "20", "--duration", "24s", "--warmup", "1s", "--observe", str(observed))
    bench = benches.start("bare", *load, program=(str(PROGRAM), "soak"))
    wait_for(lambda: told(observed), "a soak that is told of")
    bench.interrupt(signal.SIGINT)
    bench.end(60)
    assert list(observed.iterdir()) == []
