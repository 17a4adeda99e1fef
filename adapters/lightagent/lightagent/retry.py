"""When to try again, and how long to wait before: exponential back-off with jitter."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

Sleep = Callable[[float], Awaitable[None]]
Random = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Retry:
    """A retry policy.

    attempts: how often a thing is tried in all, the first time included. The wait before attempt n+1 is
    base_s * 2**(n-1), at most max_s, less a random part of up to `jitter` of it, so that clients that failed
    together do not come back together. retry_after_max_s: a server that asks for a longer wait is given up.
    """

    attempts: int = 4
    base_s: float = 0.25
    max_s: float = 8.0
    jitter: float = 0.5
    retry_after_max_s: float = 60.0

    def wait_s(self, failures: int, random: Random, retry_after_s: float | None = None) -> float | None:
        """Seconds to wait after that many failures (1 or more), or None to give up.

        random: gives a number in [0, 1). retry_after_s: the least wait that the server asked for.
        """
        if failures >= self.attempts:
            return None
        # The exponent is capped so that a policy of very many attempts cannot overflow.
        wait_s = min(self.max_s, self.base_s * 2.0 ** min(failures - 1, 64)) * (1.0 - self.jitter * random())
        if retry_after_s is None:
            return wait_s
        return max(wait_s, retry_after_s) if retry_after_s <= self.retry_after_max_s else None


NO_RETRY = Retry(attempts=1)
