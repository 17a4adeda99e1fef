"""Benches for one test, or for all tests of a module that look at the same runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentdyno.rig.environments.building import ensure
from agentdyno.rig.environments.environment import ROOT, adapter_environment
from tests.e2e.benches import Benches


@pytest.fixture(scope="session")
def _control() -> None:
    """The environment that most of these runs need."""
    ensure(adapter_environment(ROOT / "adapters" / "bare"))


@pytest.fixture
def benches(_control: None, tmp_path: Path) -> Iterator[Benches]:
    made = Benches(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def module_benches(_control: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Benches]:
    made = Benches(tmp_path_factory.mktemp("benches"))
    yield made
    made.close()
