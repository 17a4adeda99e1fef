"""Every adapter conforms, and the conformance test is able to fail: each rule is broken once."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from agentdyno.contract.adapter import find_variants, read_folder
from agentdyno.rig.conformance.requirements import Result, verify
from agentdyno.rig.environments.building import ensure
from agentdyno.rig.environments.environment import adapter_environment
from agentdyno.rig.environments.frameworks import adapters_root
from tests.conformance.bad_adapters import BAD, write

pytestmark = [pytest.mark.e2e, pytest.mark.frameworks]

VARIANTS = find_variants(adapters_root())
CONTROL = adapters_root() / "bare" / "adapter.py"
# Most of the time goes into starting interpreters that then wait; more at a time than there are cores gain nothing.
AT_A_TIME = 2
STOP_WITHIN_S = 3.0


def results_of(name: str, folder: Path) -> list[Result]:
    if name in VARIANTS:
        adapter, variant = VARIANTS[name]
        ensure(adapter_environment(adapter.path))
        return list(verify(adapter, variant))
    adapter = read_folder(write(name, CONTROL, folder))
    ensure(adapter_environment(adapter.path))
    return list(verify(adapter, adapter.variants[0], stop_within_s=STOP_WITHIN_S))


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future]]:
    """What becomes of each adapter that is asked for, two being tested at a time."""
    folder = tmp_path_factory.mktemp("adapters")
    mine = [item for item in request.session.items if item.fspath == request.node.fspath]
    names = [item.callspec.params["name"] for item in mine if hasattr(item, "callspec")]
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        yield {name: pool.submit(results_of, name, folder) for name in names}
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("name", VARIANTS)
def test_an_adapter_conforms(name: str, results: dict[str, Future]) -> None:
    found = results[name].result()
    assert [(result.name, result.failure) for result in found if result.failure is not None] == []
    assert len(found) > 15


@pytest.mark.parametrize("name", BAD)
def test_a_broken_rule_is_found_and_named(name: str, results: dict[str, Future]) -> None:
    bad = BAD[name]
    failed = [result for result in results[name].result() if result.failure is not None]
    assert failed
    assert {result.name for result in failed if not result.name.startswith(bad.fails)} == set()
    assert bad.says in failed[0].failure
