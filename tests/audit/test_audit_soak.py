"""The audit of a soak: the growth follows from its segments."""

import json
from pathlib import Path

from agentdyno.analysis.growth import growth
from agentdyno.audit.run import audit_run
from agentdyno.record.checksums import write_checksums
from agentdyno.record.folder import RunFolder
from agentdyno.rig.soak import Segment, Soak, drained_points
from tests.golden.run import manifest

MB = 1_000_000


def soak(parent: Path) -> Path:
    segments = [Segment(200, 200, (100 + number % 3) * MB, None, None) for number in range(16)]
    result = Soak(framework="lean", segment_s=10.0, settle_s=1.0, segments=segments)
    result.growth = growth(drained_points(segments))
    folder = RunFolder(parent / "soak")
    folder.path.mkdir()
    folder.write_json("manifest.json", manifest())
    folder.write_json("soak.json", result)
    write_checksums(folder.path)
    return folder.path


def test_a_good_soak(tmp_path: Path) -> None:
    found = audit_run(soak(tmp_path))
    assert (found.faults, found.files) == ([], 2)
    assert found.figures > 3


def test_a_growth_that_does_not_follow_is_named(tmp_path: Path) -> None:
    path = soak(tmp_path)
    document = json.loads((path / "soak.json").read_text(encoding="utf-8"))
    document["growth"]["requests"] += 1
    (path / "soak.json").write_text(json.dumps(document), encoding="utf-8")
    write_checksums(path)
    assert [str(fault) for fault in audit_run(path).faults] == [
        "soak.json: growth.requests: it says 3001, but the raw files give 3000."
    ]
