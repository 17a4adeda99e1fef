"""For all tests: Locust is imported without its monkey-patching, which would turn this process's sockets, threads
and clocks into gevent's under every other test. Processes that tests start are patched as they always are.


Under pytest-xdist tests/e2e goes file by file, because it takes longest; the other folders go whole, so that what their
tests share (a framework's conformance run, above all) is made once.
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
        group = place.as_posix() if place.parts[0] == "e2e" else place.parts[0]
        item.add_marker(pytest.mark.xdist_group(group))
