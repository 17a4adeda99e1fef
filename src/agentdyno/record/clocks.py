"""The clocks of a run's senders, brought together."""

from __future__ import annotations

from agentdyno.contract.trace import Hello, Service


class Clocks:
    """Brings the records of several machines to one clock: the first host's, else the first sender's.

    Senders on one machine share its monotonic clock; only between machines does Unix time relate them. Of each
    machine the first hello counts, so that a step of the wall clock moves nothing later.
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

    def shift_ns(self, service: Service) -> int:
        """What to add to a service's times to have them on the run's clock."""
        own = self._offset_ns.get(self._machine_of.get(service, ""))
        base = self.unix_offset_ns
        return 0 if own is None or base is None else own - base
