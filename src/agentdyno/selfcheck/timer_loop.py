"""The control of the check `load`: a loop that only wakes up at a rate and notes how late it was.

`python -m agentdyno.selfcheck.timer_loop RATE_RPS DURATION_S CORES` prints p50, p99 and max in ms as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time


def lateness_ms(rate_rps: float, duration_s: float) -> list[float]:
    """How late each wake-up of an absolute schedule was, in ascending order."""
    start_ns = time.monotonic_ns() + 10_000_000
    late = []
    for index in range(int(rate_rps * duration_s)):
        due_ns = start_ns + int(index * 1e9 / rate_rps)
        while (wait_ns := due_ns - time.monotonic_ns()) > 0:
            time.sleep(wait_ns / 1e9)
        late.append((time.monotonic_ns() - due_ns) / 1e6)
    return sorted(late)


def main() -> None:
    """Pin, run, print."""
    rate_rps, duration_s, cores = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    if cores:
        os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    late = lateness_ms(rate_rps, duration_s)
    found = {"p50": late[len(late) // 2], "p99": late[int(len(late) * 0.99)], "max": late[-1]}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
