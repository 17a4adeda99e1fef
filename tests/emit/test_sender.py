"""The sender against recorders that stall, refuse, die and come back: every record is received or counted."""

import asyncio
import inspect
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentdyno.contract.trace import Hello, LlmCall, RequestEvents, Service, ToolSpan
from agentdyno.emit import sender as module
from agentdyno.emit.sender import Sender, parse_address
from tests.emit.recorders import PlayedRecorder, call, listener_on, recording, until


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the sender does every quarter of a second it does here every two milliseconds."""
    monkeypatch.setattr(module, "FLUSH_INTERVAL_S", 0.002)


def run(coroutine) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 60))


def tell(sender: Sender, numbers: range) -> None:
    for number in numbers:
        sender.add(lambda number=number: call(number))


def test_what_is_told_arrives_in_order_with_a_ledger_and_a_clock() -> None:
    async def trial() -> None:
        async with recording() as (played, address):
            sender = Sender(address, Service.BACKEND)
            sender.start()
            tell(sender, range(1, 1001))
            await sender.stop()
            assert played.calls == list(range(1, 1001))
            assert (sender.recorded, sender.dropped) == (1000, 0)
            assert (played.last.service, played.last.recorded, played.last.dropped) == (Service.BACKEND, 1000, 0)
            (hello,) = played.hellos
            assert hello.service is Service.BACKEND
            assert hello.machine
            assert isinstance(played.frames[0][0], Hello)
            assert all(len(frame) <= module.FRAME_RECORDS + 1 for frame in played.frames)

    run(trial())


def test_nothing_is_made_while_a_request_waits() -> None:
    made: list[int] = []

    async def trial() -> None:
        async with recording() as (_, address):
            sender = Sender(address, Service.HOST)
            sender.add(lambda: made.append(1) or call(1))
            assert not made
            await sender.stop()
            assert made == [1]

    run(trial())


def test_a_recorder_that_refuses_costs_the_records_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LAST_FLUSH_S", 0.05)

    async def trial() -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = free.getsockname()
        sender = Sender(address, Service.HOST)
        sender.start()
        tell(sender, range(500))
        await asyncio.sleep(0.02)
        tell(sender, range(500))
        await sender.stop()
        assert (sender.recorded, sender.dropped) == (1000, 1000)

    run(trial())


def test_a_recorder_that_comes_late_gets_all() -> None:
    async def trial() -> None:
        with listener_on() as first:
            address = first.getsockname()
        sender = Sender(address, Service.HOST)
        sender.start()
        tell(sender, range(300))
        await asyncio.sleep(0.05)
        played = PlayedRecorder()
        await played.listen(listener_on(address[1]))
        tell(sender, range(300, 600))
        await sender.stop()
        assert played.calls == list(range(600))
        assert sender.dropped == 0
        await played.die()

    run(trial())


def test_a_recorder_that_dies_and_comes_back_misses_nothing() -> None:
    async def trial() -> None:
        listener = listener_on()
        address = listener.getsockname()
        first = PlayedRecorder()
        await first.listen(listener)
        sender = Sender(address, Service.HOST)
        sender.start()
        tell(sender, range(500))
        await until(lambda: len(first.calls) >= 200)
        await first.die()
        tell(sender, range(500, 1000))
        await asyncio.sleep(0.02)
        second = PlayedRecorder()
        await second.listen(listener_on(address[1]))
        await sender.stop()
        # What the first had kept but not acknowledged comes to the second once more.
        assert sorted({*first.calls, *second.calls}) == list(range(1000))
        assert second.calls == sorted(set(second.calls))
        assert sender.dropped == 0
        await second.die()

    run(trial())


@settings(max_examples=30, deadline=None)
@given(st.sets(st.integers(1, 40), max_size=12), st.integers(1, 60))
def test_connections_cut_before_any_acknowledgement_lose_and_double_nothing(cut_after, batches) -> None:
    async def trial() -> None:
        async with recording(lambda number: number not in cut_after) as (played, address):
            sender = Sender(address, Service.HOST)
            sender.start()
            for batch in range(batches):
                tell(sender, range(batch * 5, batch * 5 + 5))
                await asyncio.sleep(0)
            await sender.stop()
            distinct = {repr(frame): frame for frame in played.frames}
            assert sorted(set(played.calls)) == list(range(batches * 5))
            assert sender.dropped == 0
            # A frame that came twice came as it was, byte by byte: that is how a reader knows.
            told = [r.span_id for frame in distinct.values() for r in frame if hasattr(r, "span_id")]
            assert sorted(told) == list(range(batches * 5))

    run(trial())


def test_a_hellos_acknowledgement_is_not_taken_for_a_frames() -> None:
    async def trial() -> None:
        # It dies with one frame read and not acknowledged, twice; the hello it had acknowledged.
        listener = listener_on()
        address = listener.getsockname()
        heard: list[bytes] = []

        async def hears_a_hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heard.append(await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big")))
            writer.write(b"\x06")
            await reader.read(1)
            writer.transport.abort()

        server = await asyncio.start_server(hears_a_hello, sock=listener)
        sender = Sender(address, Service.HOST)
        sender.start()
        tell(sender, range(5))
        await until(lambda: len(heard) >= 2)
        server.close()
        await server.wait_closed()
        played = PlayedRecorder()
        await played.listen(listener_on(address[1]))
        await sender.stop()
        assert played.calls == list(range(5))
        assert sender.dropped == 0
        await played.die()

    run(trial())


def test_a_recorder_that_stalls_costs_what_is_beyond_the_room_and_memory_stays_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_WRITE_BUFFER_BYTES", 1000)
    room_bytes = 100_000

    async def trial() -> None:
        async with recording() as (played, address):
            played.reads.clear()
            sender = Sender(address, Service.HOST, pending_bytes=room_bytes)
            sender.start()
            for batch in range(300):
                tell(sender, range(batch * 100, batch * 100 + 100))
                await asyncio.sleep(0.001)
            await until(lambda: not sender._waiting)
            assert sender.dropped > 0
            assert sum(len(frame.content) for frame in sender._frames) <= room_bytes
            played.reads.set()
            await sender.stop()
            # What was kept are the first ones, without a gap but for what fitted where others had not.
            assert len(played.calls) + sender.dropped == sender.recorded == 30_000
            assert played.calls == sorted(set(played.calls))
            assert played.last.dropped == sender.dropped

    run(trial())


def test_a_recorder_that_never_reads_does_not_hold_the_end_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LAST_FLUSH_S", 0.05)

    async def trial() -> None:
        async with recording() as (played, address):
            played.reads.clear()
            sender = Sender(address, Service.HOST)
            sender.start()
            tell(sender, range(5000))
            await sender.stop()
            assert sender.recorded == sender.dropped == 5000

    run(trial())


def test_beyond_the_capacity_between_two_flushes_the_newest_are_dropped() -> None:
    async def trial() -> None:
        async with recording() as (played, address):
            sender = Sender(address, Service.HOST, capacity=10)
            tell(sender, range(25))
            await sender.stop()
            assert played.calls == list(range(10))
            assert (sender.recorded, sender.dropped, played.last.dropped) == (25, 15, 15)

    run(trial())


def test_what_comes_after_the_end_is_counted() -> None:
    async def trial() -> None:
        async with recording() as (played, address):
            sender = Sender(address, Service.HOST)
            sender.start()
            await sender.stop()
            tell(sender, range(3))
            assert (sender.recorded, sender.dropped, played.calls) == (3, 3, [])

    run(trial())


def request(**call_fields: object) -> RequestEvents:
    return RequestEvents(b"t" * 16, None, 1, 2, 3, "ok", [], [LlmCall(4, 5, **call_fields)], [])


@pytest.mark.parametrize(
    "make",
    [
        lambda: request(model="half a pair: \ud800"),
        lambda: request(prompt_tokens=2**70),
        lambda: RequestEvents(b"t" * 16, None, 1, 2, 3, "ok", [], [], [ToolSpan(1, "x", 2, 3, "\udfff")]),
        lambda: 1 / 0,
    ],
)
def test_a_record_that_cannot_be_made_or_encoded_costs_itself_alone(make) -> None:
    async def trial() -> None:
        async with recording() as (played, address):
            sender = Sender(address, Service.HOST)
            sender.start()
            tell(sender, range(5))
            sender.add(make)
            tell(sender, range(5, 10))
            await asyncio.sleep(0.02)
            tell(sender, range(10, 15))  # the sender lives on
            await sender.stop()
            assert played.calls == list(range(15))
            assert (sender.recorded, sender.dropped) == (16, 1)

    run(trial())


def test_telling_waits_for_nothing() -> None:
    assert not inspect.iscoroutinefunction(Sender.add)


@pytest.mark.parametrize("text", ["", "4319", ":4319", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:\u0663"])
def test_an_address_that_is_none_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not an address such as"):
        parse_address(text)


def test_an_address() -> None:
    assert parse_address("127.0.0.1:4319") == ("127.0.0.1", 4319)
