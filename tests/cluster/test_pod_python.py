"""A program of a pod is answered as an interpreter of its own would answer."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.pod_python import PodPython


@pytest.mark.parametrize(
    ("words", "exit_code"),
    [
        (["-S", "-c", "import sys; sys.stdout.buffer.write(b'\\xff'); sys.stdout.write(str(sys.argv))", "a", "b c"], 0),
        (["-c", "import sys, msgspec; sys.stdout.write(msgspec.__name__); sys.stderr.write('said')"], 0),
        (["-c", "from agentdyno.record.calibration import calibrated; print(calibrated.__module__)"], 0),
        (["-S", "-c", "import msgspec"], 1),
        (["-S", "-c", "import sys; sys.exit(7)"], 7),
        (["-S", "-c", "import sys; sys.exit('why')"], 1),
        (["-S", "-c", "import sys; print(any('site-packages' in path for path in sys.path))"], 0),
    ],
)
def test_it_answers_as_an_interpreter_of_its_own(pod_python: PodPython, words: list[str], exit_code: int) -> None:
    code, out, err = asyncio.run(pod_python.run(words))
    own = subprocess.run([sys.executable, *words], capture_output=True, check=False)
    assert (code, out) == (own.returncode, own.stdout)
    assert err.splitlines()[-1:] == own.stderr.splitlines()[-1:]
    assert code == exit_code


def test_what_is_written_is_there_when_it_has_ended(pod_python: PodPython, tmp_path: Path) -> None:
    asyncio.run(
        pod_python.run(["-S", "-c", "import sys; f = open(sys.argv[1], 'w'); f.write('x')", str(tmp_path / "x")])
    )
    assert (tmp_path / "x").read_text() == "x"


def test_nothing_of_one_program_is_left_for_the_next(pod_python: PodPython) -> None:
    asyncio.run(pod_python.run(["-S", "-c", "import json, os; json.left = 1; os.environ['LEFT'] = '1'"]))
    code, out, _ = asyncio.run(
        pod_python.run(["-c", "import json, os; print(hasattr(json, 'left'), 'LEFT' in os.environ)"])
    )
    assert (code, out) == (0, b"False False\n")
