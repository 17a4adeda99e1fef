"""For all tests: Locust is imported without its monkey-patching, which would turn this process's sockets, threads
and clocks into gevent's under every other test. Processes that tests start are patched as they always are.


Under pytest-xdist the tests that put load on real processes go file by file, the others folder by folder, so that what
they share is made once.
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
        place = item.path.relative_to(_TESTS)
        loaded = item.get_closest_marker("e2e") is not None
        item.add_marker(pytest.mark.xdist_group(place.as_posix() if loaded else place.parts[0]))
