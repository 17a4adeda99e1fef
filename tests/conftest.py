"""For all tests: Locust is imported without its monkey-patching, which would turn this process's sockets, threads
and clocks into gevent's under every other test. Processes that tests start are patched as they always are.


Under pytest-xdist the tests that put load on real processes stay one after the other on one worker, so that they do not
take each other's cores; the others go folder by folder, so that what a folder's tests share is made once.
"""

import os
from pathlib import Path

import pytest

os.environ["LOCUST_SKIP_MONKEY_PATCH"] = "1"
import locust  # noqa: F401

del os.environ["LOCUST_SKIP_MONKEY_PATCH"]

_TESTS = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        folder = item.path.relative_to(_TESTS).parts[0]
        loaded = item.get_closest_marker("e2e") is not None
        item.add_marker(pytest.mark.xdist_group("e2e" if loaded else folder))
