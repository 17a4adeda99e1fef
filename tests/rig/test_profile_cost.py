"""What profiling costs: a ratio of two runs that kept up, and no ratio of others."""

import msgspec
import pytest

from agentdyno.contract.summary import Summary
from agentdyno.rig.profile import compare_cost
from tests.golden.run import GoldenRun


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Summary:
    return GoldenRun().summary(tmp_path_factory.mktemp("golden"))


def test_the_ratio_is_profiled_over_plain(plain: Summary) -> None:
    assert plain.cpu_ms_per_request is not None
    profiled = msgspec.structs.replace(plain, cpu_ms_per_request=1.25 * plain.cpu_ms_per_request)
    found = compare_cost(plain, profiled)
    assert (found.both_valid, found.both_kept_up) == (True, True)
    assert found.cpu_ratio == pytest.approx(1.25)
    assert found.service_p50_ratio == 1.0
    assert found.sentence().startswith("Profiling costs: CPU per request 1.25 x, service time p50 1.00 x")
    unknown = compare_cost(plain, msgspec.structs.replace(plain, cpu_ms_per_request=None))
    assert unknown.cpu_ratio is None
    assert "CPU per request not measured" in unknown.sentence()


@pytest.mark.parametrize("which", ["plain", "profiled"])
def test_where_one_did_not_keep_up_there_is_no_ratio(plain: Summary, which: str) -> None:
    assert plain.load is not None
    load = msgspec.structs.replace(plain.load, ok=plain.load.ok - 200, timeout=200)
    slow = msgspec.structs.replace(plain, load=load)
    found = compare_cost(*((slow, plain) if which == "plain" else (plain, slow)))
    assert (found.both_kept_up, found.cpu_ratio, found.service_p50_ratio) == (False, None, None)
    assert found.cpu_ms_per_request == (plain.cpu_ms_per_request,) * 2
    assert "did not keep up" in found.sentence()
