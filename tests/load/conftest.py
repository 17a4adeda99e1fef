"""Fixtures of the load side's tests."""

import pytest
from hypothesis import settings

from tests.load.locust_processes import Processes

# A busy machine may take long over one example; that is no failure.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


@pytest.fixture
def processes(tmp_path):
    started = Processes(tmp_path)
    yield started
    started.close()
