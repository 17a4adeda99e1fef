"""`python -m agentdyno.host.cold`: import one adapter in a fresh process, as the host does, and say what that took."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from agentdyno.contract.adapter import AdapterError, read_folder
from agentdyno.host.serve import load_adapter


def main(argv: list[str] | None = None) -> int:
    """Print one JSON line: import_ms, and the resident memory before and after it; 2 and a sentence when it fails."""
    parser = argparse.ArgumentParser(prog="python -m agentdyno.host.cold", description=__doc__)
    parser.add_argument("--adapter", type=Path, required=True)
    parser.add_argument("--variant", required=True)
    options = parser.parse_args(argv)
    try:
        folder = read_folder(options.adapter)
        variant = next(each for each in folder.variants if each.name == options.variant)
        before = _rss_bytes()
        begin_ns = time.perf_counter_ns()
        load_adapter(folder.path, variant)
        import_ms = (time.perf_counter_ns() - begin_ns) / 1e6
    except AdapterError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    found = {"import_ms": import_ms, "rss_before_bytes": before, "rss_after_bytes": _rss_bytes()}
    sys.stdout.write(f"{json.dumps(found)}\n")
    return 0


def _rss_bytes() -> int | None:
    """None where there is no /proc."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    line = next((line for line in status.splitlines() if line.startswith("VmRSS:")), None)
    return int(line.split()[1]) * 1024 if line else None


if __name__ == "__main__":
    sys.exit(main())
