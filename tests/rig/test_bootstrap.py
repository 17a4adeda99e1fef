"""On a Python that cannot do, set-up is a sentence and not a traceback."""

import subprocess
import sys
from pathlib import Path

from agentdyno.rig.environments import environment as environments

BOOTSTRAP = Path(environments.__file__).with_name("bootstrap.py")


def run_with(before: str) -> subprocess.CompletedProcess[str]:
    """Run the bootstrap file after `before` has changed what it sees of its Python."""
    code = f"import sys; {before}; exec(compile(open({str(BOOTSTRAP)!r}).read(), 'bootstrap.py', 'exec'))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_an_old_python_is_told_so() -> None:
    done = run_with("sys.version_info = (3, 10, 2); sys.version = '3.10.2 (main)'")
    assert done.returncode == 2
    assert done.stderr == (
        f"AgentDyno needs Python 3.11 or newer, and {sys.executable} is 3.10.2. "
        "Name another one: make PYTHON=/path/to/python3.11 ...\n"
    )


def test_a_python_without_venv_is_told_so() -> None:
    done = run_with("sys.modules['ensurepip'] = None")
    assert done.returncode == 2
    assert "lacks the module ensurepip" in done.stderr
    assert "apt-get install python3-venv" in done.stderr
    assert "Traceback" not in done.stderr


def test_nothing_in_it_is_too_new_for_an_old_python() -> None:
    text = BOOTSTRAP.read_text()
    before_the_check = text.partition("import importlib")[0]
    assert "def " not in before_the_check
    assert 'f"' not in text
    assert "from __future__" not in text


def test_the_builders_need_the_standard_library_only() -> None:
    code = f"import sys; sys.path.insert(0, {str(BOOTSTRAP.parents[3])!r}); import agentdyno.rig.environments.building"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
