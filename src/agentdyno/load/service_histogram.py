"""Service times as an HDR histogram: what a worker can say of millions of requests in some kilobytes.

Each worker keeps one beside its raw records. Counts of equal buckets add up, so the workers' histograms merge into the
very one of all samples together, and its percentiles are the raw ones to three significant digits. The audit of a run
compares the two: records that were lost or cut on their way from a worker would show.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

from hdrh.histogram import HdrHistogram

DIGITS = 3
_HIGHEST_US = 3_600_000_000  # an hour, beyond every time-out
_NS_PER_US = 1_000


class ServiceHistogram:
    """Of answered requests, in microseconds."""

    def __init__(self) -> None:
        self._counts = HdrHistogram(1, _HIGHEST_US, DIGITS)

    def add(self, service_ns: int) -> None:
        """Count one; about 2 us."""
        self._counts.record_value(min(max(1, service_ns // _NS_PER_US), _HIGHEST_US))

    @property
    def n(self) -> int:
        """How many were counted."""
        count: int = self._counts.get_total_count()
        return count

    def percentile_ms(self, percent: float) -> float:
        """By nearest rank, as all percentiles here: the highest value that its bucket stands for; 0 of nothing.

        The library rounds a rank to the nearest whole one, so it is asked for one that is whole.
        """
        rank = ceil(self.n * percent / 100)
        value: int = self._counts.get_value_at_percentile(100 * rank / self.n) if rank else 0
        return value / _NS_PER_US

    def encoded(self) -> str:
        """In the format of HdrHistogram's other languages, compressed, as text."""
        content: bytes = self._counts.encode()
        return content.decode("ascii")


def pooled(encoded: Iterable[str]) -> ServiceHistogram:
    """The histogram of all the workers' samples. Raises ValueError for a text that is none."""
    found = ServiceHistogram()
    for text in encoded:
        try:
            found._counts.add(HdrHistogram.decode(text.encode("ascii")))
        except Exception as error:  # the library raises whatever zlib, ctypes and its own checks do
            raise ValueError(f"{text[:20]!r}... is no HDR histogram: {error}") from error
    return found
