"""Lets tests of this folder be coroutines, and puts the wrapped HTTP clients back after each test."""

from __future__ import annotations

import asyncio
import inspect

import aiohttp
import httpx
import httpx2
import pytest

from agentdyno.host import invocation


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**arguments), 120))
    return True


@pytest.fixture(autouse=True)
def _unreported_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    """The count of faults that were written to the log is the process's; each test starts from none."""
    monkeypatch.setattr(invocation, "_faults_reported", 0)


@pytest.fixture
def unwrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The HTTP clients as their libraries made them, before and after the test."""
    for owner, name in (
        (aiohttp.ClientSession, "_request"),
        (aiohttp.TCPConnector, "_create_connection"),
        (aiohttp.ClientResponse, "release"),
        (aiohttp.ClientResponse, "close"),
        (aiohttp.TCPConnector, "_create_connection"),
        (httpx.AsyncHTTPTransport, "handle_async_request"),
        (httpx2.AsyncHTTPTransport, "handle_async_request"),
    ):
        monkeypatch.setattr(owner, name, getattr(owner, name))
