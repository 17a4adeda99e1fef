"""For all tests: Locust is imported without its monkey-patching, which would turn this process's sockets, threads
and clocks into gevent's under every other test. Processes that tests start are patched as they always are.

Under pytest-xdist tests/e2e goes file by file, because it takes longest; the other folders go whole, so that what their
tests share (a framework's conformance run, above all) is made once. The longest begin first, so that no worker is left
with one of them when the others have nothing more to do. The groups are told to the scheduler itself: those
of the mark `xdist_group` are lost between pytest 9.2 and pytest-xdist 3.8 (pytest-xdist's issue 1386).
"""

import os
from pathlib import PurePosixPath

import pytest
from xdist.scheduler import LoadScopeScheduling

os.environ["LOCUST_SKIP_MONKEY_PATCH"] = "1"
import locust  # noqa: F401

from tests.locales import comma_locale  # noqa: F401

del os.environ["LOCUST_SKIP_MONKEY_PATCH"]
# What several tests assert in common says what it found, as a test's own assertions do.
pytest.register_assert_rewrite("tests.cluster.finished_run")


_CORES = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None

# By how long they take, from minutes down; what is not named takes less than the last.
_LONGEST = (
    *("k8s", "conformance", "cluster", "e2e/test_soak.py", "load", "selfcheck", "rig", "e2e/test_faults.py", "host"),
    *("e2e/test_traces.py", "e2e/test_bench.py", "report", "analysis", "e2e/test_compare.py", "e2e/test_profile.py"),
    *("grafana", "backends", "e2e/test_interruption.py", "e2e/test_sweep.py", "e2e/test_watched_series.py"),
    *("e2e/test_native_spans.py", "audit", "e2e/test_vllm_settings.py"),
)


class ByFolder(LoadScopeScheduling):
    """Hands a group of tests to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def group_of(nodeid: str) -> str:
    """Which tests go together: those of a folder of tests/, and of a file in tests/e2e."""
    _, folder, *rest = PurePosixPath(nodeid.partition("::")[0]).parts
    return "/".join([folder, *rest]) if folder == "e2e" else folder


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    config.option.loadscopereorder = False
    return ByFolder(config, log)


def pytest_runtest_setup(item):
    """A rig stays on its own cores after a run: the next test of this process begins on all that it was given."""
    if _CORES is not None:
        os.sched_setaffinity(0, _CORES)


def pytest_collection_modifyitems(config, items):
    if hasattr(config, "workerinput"):
        places = {group: place for place, group in enumerate(_LONGEST)}
        items.sort(key=lambda item: places.get(group_of(item.nodeid), len(places)))
