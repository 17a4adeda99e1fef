"""An adapter that fails: a problem with the class's name, and a log that an overload cannot fill."""

import asyncio
import logging

import pytest

from tests.host.adapters import Plain
from tests.host.serving import Exchange, counts, make_host, request_body, serving


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Framework(Exception):
    pass


FAULTS = {
    Framework("it broke"): "Framework: it broke",
    KeyError("order"): "KeyError: 'order'",
    ValueError(): "ValueError: ",
    TimeoutError("upstream"): "TimeoutError: upstream",
    asyncio.CancelledError(): "CancelledError: ",
    Unspeakable(): "Unspeakable (its message cannot be read: RuntimeError)",
    UnicodeError("half a pair: \ud800"): "UnicodeError: half a pair: \\ud800",
    Framework("x" * 5000): "Framework: " + "x" * 489,
}


@pytest.mark.parametrize("error", FAULTS, ids=lambda error: type(error).__name__)
async def test_an_exception_is_a_500_with_its_class(error, capsys, caplog):
    async def work(_):
        raise error

    async with serving(Plain(work)) as served:
        answer = await served.invoke()
        assert answer.problem() == (500, "framework_error")
        assert answer.json()["title"] == "The framework failed"
        assert answer.json()["detail"] == FAULTS[error]
        assert counts(served.host) == {"error": 1, "in_flight": 0}
    log = capsys.readouterr().err
    assert "Traceback (most recent call last)" in log or isinstance(error, asyncio.CancelledError)
    assert type(error).__name__ in log
    assert caplog.records == []  # nothing reached the server


@pytest.mark.parametrize(
    "output", [None, 5, b"bytes", ["a"], pytest.param(object(), id="object"), "half a pair: \ud800"], ids=repr
)
async def test_an_output_that_is_no_text_is_a_500(output, caplog):
    async def work(_):
        return output

    async with serving(Plain(work)) as served:
        answer = await served.invoke()
        assert answer.problem() == (500, "framework_error")
        assert await served.outcome() == "error"
    assert caplog.records == []


async def test_the_log_holds_a_bounded_number_of_tracebacks(capsys):
    numbers = iter(range(1000))

    async def work(_):
        raise OSError(f"fault {next(numbers)}.")

    host = make_host(Plain(work))
    for _ in range(100):
        exchange = Exchange(host)
        exchange.give(request_body())
        assert (await exchange.answer()).status == 500
    log = capsys.readouterr().err
    assert log.count("Traceback (most recent call last)") == 20
    assert "fault 19." in log
    assert "fault 20." not in log
    assert log.count("Further faults are counted in /metrics and not logged.\n") == 1
    assert counts(host)["error"] == 100


async def test_a_fault_after_the_time_out_is_logged_and_not_lost(capsys, caplog):
    caplog.set_level(logging.WARNING)
    ended = asyncio.Event()

    async def work(_):
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
            raise OSError("while it was cancelled")

    async with serving(Plain(work)) as served:
        assert (await served.invoke(timeout_ms=20)).status == 504
        await ended.wait()
        await asyncio.sleep(0)
    assert "OSError: while it was cancelled" in capsys.readouterr().err
    assert caplog.records == []
