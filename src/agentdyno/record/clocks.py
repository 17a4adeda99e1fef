"""The clocks of a run's senders, brought together."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from statistics import median_low

from agentdyno.contract.trace import Hello, Record, RequestEvents, ServedCall, Service


class Clocks:
    """Brings the records of several machines to one clock: the first host's, else the first sender's.

    Senders on one machine share its monotonic clock; between machines Unix time relates them, where nothing better does
    (see nested_shift_ns). Of each machine the first hello counts, so that a step of the wall clock moves nothing later.
    """

    def __init__(self) -> None:
        self._offset_ns: dict[str, int] = {}
        self._machine_of: dict[Service, str] = {}

    def meet(self, hello: Hello) -> None:
        """Take note of a sender's first word."""
        self._machine_of.setdefault(hello.service, hello.machine)
        self._offset_ns.setdefault(hello.machine, hello.unix_ns - hello.monotonic_ns)

    @property
    def unix_offset_ns(self) -> int | None:
        """From the run's clock to Unix time; None before anybody said hello."""
        if not self._machine_of:
            return None
        machine = self._machine_of.get(Service.HOST) or next(iter(self._machine_of.values()))
        return self._offset_ns[machine]

    @property
    def several(self) -> bool:
        """Do the senders run on more machines than one?"""
        return len(self._offset_ns) > 1

    def shift_ns(self, service: Service) -> int:
        """What to add to a service's times to have them on the run's clock."""
        own = self._offset_ns.get(self._machine_of.get(service, ""))
        base = self.unix_offset_ns
        return 0 if own is None or base is None else own - base


def nested_shift_ns(records: Iterable[Record]) -> int | None:
    """What to add to the backend's times to have them on the host's clock, by the calls that both know.

    A call was made before it was served, and its answer read after that: the backend's part lies within the host's. It
    is laid into the middle of it, as if the ways there and back took as long; of all calls the median counts, as either
    side may be held up at any time. None where no call is known to both.
    """
    made: dict[int, int] = {}
    served: list[ServedCall] = []
    for record in records:
        if isinstance(record, RequestEvents):
            made |= {call.span_id: call.start_ns + call.end_ns for call in record.llm_calls if call.end_ns is not None}
        elif isinstance(record, ServedCall) and record.status == HTTPStatus.OK:
            served.append(record)
    twice = [made[one.parent_span_id] - one.start_ns - one.end_ns for one in served if one.parent_span_id in made]
    return median_low(twice) // 2 if twice else None
