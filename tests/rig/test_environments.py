"""Environments are just what their lock says, are never used half made, and survive two builders at once."""

import dataclasses
import fcntl
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from py_compile import PycInvalidationMode

import pytest

from agentdyno.rig.environments import environment as environments
from agentdyno.rig.environments.building import ensure
from agentdyno.rig.environments.environment import SetupError, State, check, facts, state
from tests.rig.conftest import Checkout, make_wheel

SOURCE = Path(environments.__file__).parents[2]


def in_environment(checkout: Checkout, code: str) -> str:
    done = subprocess.run([checkout.environment.python, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def has_current_bytecode(source: Path) -> bool:
    """The bytecode of `source` bears its modification time, in bytes 8 to 12."""
    compiled = Path(importlib.util.cache_from_source(str(source)))
    return compiled.exists() and int.from_bytes(compiled.read_bytes()[8:12], "little") == int(source.stat().st_mtime)


def test_builds_what_the_lock_says_and_compiles_it(checkout: Checkout) -> None:
    environment = checkout.environment
    assert state(environment) is State.ABSENT
    ensure(environment)
    assert state(environment) is State.READY
    assert check(environment) == []
    assert in_environment(checkout, "import tinydist, agentdyno; print(tinydist.VERSION, agentdyno.MARK)") == "1.0 ours"
    assert has_current_bytecode(environment.site_packages / "tinydist" / "__init__.py")
    assert has_current_bytecode(checkout.root / "src" / "agentdyno" / "__init__.py")
    assert has_current_bytecode(checkout.folder / "adapter.py")
    found = facts(environment)
    assert (found.distributions, found.distribution_count) == ({"tinydist": "1.0"}, 1)
    assert found.disk_mb > 0
    assert found.python.endswith(sys.version.split()[0])


def test_bytecode_may_be_what_is_never_checked_against_its_source(checkout: Checkout) -> None:
    """For an image, in which neither changes."""
    ensure(checkout.environment, PycInvalidationMode.UNCHECKED_HASH)
    assert in_environment(checkout, "import tinydist; print(tinydist.VERSION)") == "1.0"
    package = checkout.environment.site_packages / "tinydist" / "__init__.py"
    for source in (package, checkout.root / "src" / "agentdyno" / "__init__.py", checkout.folder / "adapter.py"):
        compiled = Path(importlib.util.cache_from_source(str(source))).read_bytes()
        assert int.from_bytes(compiled[4:8], "little") == 0b01


def test_a_distribution_is_also_known_by_the_name_that_its_program_asks_for(checkout: Checkout) -> None:
    environment = dataclasses.replace(checkout.environment, alias=("tiny", "tinydist", "+small"))
    ensure(environment)
    assert check(environment) == []
    asked = "from importlib.metadata import version; print(version('tiny'), version('tinydist'))"
    assert in_environment(checkout, asked) == "1.0+small 1.0"
    assert facts(environment).distributions == {"tiny": "1.0+small", "tinydist": "1.0"}


def test_one_that_is_up_to_date_is_left_alone_but_changed_sources_are_compiled(checkout: Checkout) -> None:
    ensure(checkout.environment)
    stamp = checkout.environment.stamp.stat()
    source = checkout.folder / "adapter.py"
    source.write_text("VALUE = 2\n")
    os.utime(source, (time.time() + 5, time.time() + 5))
    assert not has_current_bytecode(source)
    ensure(checkout.environment)
    assert has_current_bytecode(source)
    after = checkout.environment.stamp.stat()
    assert (stamp.st_ino, stamp.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_a_half_made_one_is_built_anew(checkout: Checkout) -> None:
    ensure(checkout.environment)
    checkout.environment.stamp.unlink()
    left_over = checkout.environment.site_packages / "left_over.py"
    left_over.touch()
    assert state(checkout.environment) is State.HALF_MADE
    assert "half made" in check(checkout.environment)[0]
    ensure(checkout.environment)
    assert not left_over.exists()
    assert state(checkout.environment) is State.READY


def test_a_changed_lock_makes_it_built_anew(checkout: Checkout) -> None:
    ensure(checkout.environment)
    checkout.lock("2.0")
    assert state(checkout.environment) is State.LOCK_CHANGED
    ensure(checkout.environment)
    assert in_environment(checkout, "import tinydist; print(tinydist.VERSION)") == "2.0"


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("python", "CPython 3.0.0", State.OTHER_PYTHON),
        ("base", "/another/python", State.OTHER_PYTHON),
        ("place", "/another/checkout", State.MOVED),
        ("format", 0, State.HALF_MADE),
    ],
)
def test_a_stamp_of_other_circumstances_does_not_count(
    checkout: Checkout, field: str, value: object, expected: State
) -> None:
    ensure(checkout.environment)
    stamp = checkout.environment.stamp
    stamp.write_text(json.dumps(json.loads(stamp.read_text()) | {field: value}))
    assert state(checkout.environment) is expected


def test_a_tampered_one_is_told_apart_from_its_lock(checkout: Checkout) -> None:
    ensure(checkout.environment)
    site_packages = checkout.environment.site_packages
    metadata = site_packages / "tinydist-1.0.dist-info"
    metadata.rename(site_packages / "tinydist-1.1.dist-info")
    (site_packages / "Stow_Away-3.dist-info").mkdir()
    assert check(checkout.environment) == [
        "tinydist 1.1 is installed for tiny where the lock has 1.0.",
        "stow-away 3 is installed for tiny but not in its lock.",
    ]
    shutil.rmtree(site_packages / "tinydist-1.1.dist-info")
    assert check(checkout.environment)[0] == "tinydist 1.0 is in the lock of tiny but no longer installed."


def test_nothing_but_the_lock_and_our_source_is_importable(checkout: Checkout) -> None:
    ensure(checkout.environment)
    code = "import importlib.util as u, sys; print([m for m in sys.argv[1:] if u.find_spec(m)])"
    rig = ["pip", "setuptools", "typer", "locust", "numpy", "pytest", "msgspec"]
    assert all(importlib.util.find_spec(module) for module in ("pip", "typer", "pytest", "msgspec"))
    done = subprocess.run([checkout.environment.python, "-c", code, *rig], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_wrong_hash_fails_with_the_log_and_is_never_used(checkout: Checkout) -> None:
    checkout.lock("1.0", digest="0" * 64)
    with pytest.raises(SetupError) as caught:
        ensure(checkout.environment)
    text = str(caught.value)
    assert "could not install what adapters/tiny/requirements.lock lists" in text
    assert str(checkout.environment.log) in text
    assert "0" * 64 in text
    assert "make env FRAMEWORK=tiny" in text
    assert state(checkout.environment) is State.HALF_MADE


def test_what_the_lock_does_not_list_is_not_resolved(checkout: Checkout) -> None:
    make_wheel(checkout.wheels, "other", "1.0")
    lock = checkout.environment.lock
    lock.write_text(lock.read_text() + "other==1.0\n")
    with pytest.raises(SetupError, match="hash"):
        ensure(checkout.environment)


def test_a_missing_lock_is_a_sentence(checkout: Checkout) -> None:
    checkout.environment.lock.unlink()
    with pytest.raises(SetupError, match=r"cannot be read: No such file.*make lock FRAMEWORK=tiny"):
        ensure(checkout.environment)


def builder(checkout: Checkout) -> subprocess.Popen[str]:
    code = (
        "import sys; from pathlib import Path; from agentdyno.rig.environments.building import ensure; "
        "from agentdyno.rig.environments.environment import adapter_environment; "
        "ensure(adapter_environment(Path(sys.argv[1]), Path(sys.argv[2])))"
    )
    command = [sys.executable, "-c", code, str(checkout.folder), str(checkout.root)]
    variables = os.environ | {"PYTHONPATH": str(SOURCE)}
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=variables)


def test_of_two_builders_one_builds(checkout: Checkout) -> None:
    builders = [builder(checkout), builder(checkout)]
    said = [process.communicate()[1] for process in builders]
    assert [process.returncode for process in builders] == [0, 0], said
    assert "".join(said).count("ready:") == 1
    assert check(checkout.environment) == []


def test_a_builder_waits_and_says_so(checkout: Checkout) -> None:
    guard = checkout.environment.guard
    guard.parent.mkdir()
    with guard.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        process = builder(checkout)
        assert process.stderr is not None
        assert "another process is building this environment; waiting" in process.stderr.readline()
        assert not checkout.environment.path.exists()
    assert "ready:" in process.communicate()[1]
    assert process.returncode == 0


def test_facts_need_an_environment(checkout: Checkout) -> None:
    with pytest.raises(SetupError, match="make env FRAMEWORK=tiny"):
        facts(checkout.environment)


def test_environments_are_values(checkout: Checkout) -> None:
    moved = dataclasses.replace(checkout.environment, name="other")
    assert moved.log.name == "other.log"
    assert moved != checkout.environment
