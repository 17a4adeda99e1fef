"""profile.proto as we write it is what protobuf and Go's pprof read, to the byte and the sign."""

import gzip
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentdyno.contract.pprof import (
    HEAP_TYPES,
    INUSE_SPACE,
    Frame,
    PprofError,
    Profile,
    Sample,
    decode,
    difference,
    encode,
    read_gzip,
    write_gzip,
)
from tests.pprof_reader import Read

LEAF = Frame("leaf", "site-packages/one/a.py", 12)
MIDDLE = Frame("middle", "site-packages/one/a.py", 7)
ROOT = Frame("module host/__main__.py", "agentdyno/host/__main__.py", 7)
LABELS = {"framework": "bare", "run": "r-1", "time": "2026-01-01T00:00:00+00:00"}


def profile(*samples: Sample, time_ns: int = 1_700_000_000_000_000_000) -> Profile:
    return Profile(
        types=HEAP_TYPES,
        samples=samples,
        time_ns=time_ns,
        duration_ns=2_000_000_000,
        period=524_288,
        program="python3.11",
        comments=("made by a test",),
    )


SMALL = profile(
    Sample((LEAF, MIDDLE, ROOT), (10, 5_000_000_000, 4, 2_000), LABELS),
    Sample((MIDDLE, ROOT), (1, 300, 1, 300), LABELS),
    Sample((LEAF, LEAF, ROOT), (2, 7, 0, 0), LABELS),
)


def test_protobuf_reads_what_we_write() -> None:
    read = Read(write_gzip(SMALL))
    assert read.types == [
        ("alloc_objects", "count"),
        ("alloc_space", "bytes"),
        ("inuse_objects", "count"),
        ("inuse_space", "bytes"),
    ]
    assert {name: read.total(name) for name, _ in read.types} == {
        "alloc_objects": 13,
        "alloc_space": 5_000_000_307,
        "inuse_objects": 5,
        "inuse_space": 2_300,
    }
    assert read.by_function("inuse_space") == {"leaf": 2_000, "middle": 2_300, ROOT.function: 2_300}
    assert read.labels() == [LABELS] * 3
    assert [read.locations[id_] for id_ in read.message.sample[0].location_id] == [[LEAF], [MIDDLE], [ROOT]]
    message = read.message
    assert (message.time_nanos, message.duration_nanos, message.period) == (SMALL.time_ns, 2_000_000_000, 524_288)
    assert read.texts[0] == ""
    assert read.texts[message.default_sample_type] == "inuse_space"
    assert read.texts[message.period_type.type] == "space"
    assert [read.texts[comment] for comment in message.comment] == ["made by a test"]
    assert read.texts[message.mapping[0].filename] == "python3.11"
    assert {location.mapping_id for location in message.location} == {message.mapping[0].id}


TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
FRAMES = st.builds(Frame, TEXTS, TEXTS, st.integers(0, 2**31))
SAMPLES = st.builds(
    Sample,
    st.lists(FRAMES, max_size=6).map(tuple),
    st.tuples(*[st.integers(-(2**63), 2**63 - 1)] * 4),
    st.dictionaries(TEXTS.filter(bool), TEXTS.filter(bool), max_size=3),
)


@given(st.lists(SAMPLES, max_size=8))
def test_what_is_written_is_what_is_read(samples: list[Sample]) -> None:
    written = profile(*samples)
    assert decode(encode(written)) == written
    read = Read(write_gzip(written))
    assert [tuple(sample.value) for sample in read.message.sample] == [sample.values for sample in samples]


def test_the_same_profile_gives_the_same_bytes() -> None:
    assert write_gzip(SMALL) == write_gzip(read_gzip(write_gzip(SMALL)))


def test_a_difference_keeps_signs_and_leaves_out_what_did_not_change() -> None:
    later = profile(
        Sample((LEAF, ROOT), (5, 50, 3, 30)), Sample((MIDDLE, ROOT), (1, 1, 1, 1)), time_ns=SMALL.time_ns + 9
    )
    earlier = profile(Sample((ROOT,), (4, 40, 2, 20)), Sample((MIDDLE, ROOT), (1, 1, 1, 1)))
    found = difference(later, earlier)
    assert {sample.stack: sample.values for sample in found.samples} == {
        (LEAF, ROOT): (5, 50, 3, 30),
        (ROOT,): (-4, -40, -2, -20),
    }
    assert found.total(INUSE_SPACE) == 10
    assert found.duration_ns == 9
    assert Read(write_gzip(found)).total("inuse_space") == 10


def test_what_is_no_profile_is_a_sentence() -> None:
    whole = encode(SMALL)
    for content in (b"\x07", b"\xff" * 30, whole[:-3], whole[:40], b"\x0a\x05\x08"):
        with pytest.raises(PprofError, match=r"profile\.proto"):
            decode(content)
    with pytest.raises(PprofError, match="gzip"):
        read_gzip(whole)
    with pytest.raises(PprofError, match="whole"):
        read_gzip(gzip.compress(whole)[:-9])


@pytest.mark.skipif(shutil.which("go") is None, reason="there is no go here (apt-get install golang-go)")
def test_gos_pprof_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "heap.pb.gz"
    file.write_bytes(write_gzip(SMALL))
    top = subprocess.run(
        ["go", "tool", "pprof", "-top", "-unit=B", str(file)], capture_output=True, text=True, check=True, cwd=tmp_path
    ).stdout
    rows = {line.split(maxsplit=5)[5]: line.split()[0] for line in top.splitlines() if line.count("% ") == 3}
    assert "Type: inuse_space" in top
    assert rows["leaf"] == "2000B"
    assert rows["middle"] == "300B"
    tags = subprocess.run(
        ["go", "tool", "pprof", "-tags", str(file)], capture_output=True, text=True, check=True, cwd=tmp_path
    ).stdout
    assert "framework:" in tags
    assert "run:" in tags
