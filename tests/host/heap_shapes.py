"""Allocates known shapes and says how large each is: by tracemalloc, or by the heap profiler (see test_heap).

No shape has a list of any size: before Python 3.12 the profiler does not see the memory of a list's items.
"""

import base64
import json
import sys
import tracemalloc
from pathlib import Path

MEGABYTE = 1_000_000


class Node:
    __slots__ = ("left", "right", "value")

    def __init__(self, value):
        self.left = self.right = None
        self.value = value


def small_bytes():
    return tuple(bytes(700) for _ in range(50_000))


def large_buffers():
    return tuple(bytearray(5 * MEGABYTE) for _ in range(6))


def texts():
    return tuple(f"message {number} of the session" * 8 for number in range(120_000))


def dictionaries():
    return tuple({"role": "tool", "content": number + 1000, "id": str(number)} for number in range(90_000))


def nodes():
    first = Node(0.0)
    last = first
    for number in range(350_000):
        last.right = Node(float(number))
        last = last.right
    return first


SHAPES = [small_bytes, large_buffers, texts, dictionaries, nodes]


def by_tracemalloc():
    tracemalloc.start()
    sizes, kept = {}, []
    for shape in SHAPES:
        before, _ = tracemalloc.get_traced_memory()
        kept.append(shape())
        sizes[shape.__name__] = tracemalloc.get_traced_memory()[0] - before
    return sizes


def by_profiler(site_packages):
    from agentdyno.host.heap import HeapProfiler

    profiler = HeapProfiler(Path(site_packages), {"run": "shapes"}, {"tests": Path(__file__).parent})
    kept = [shape() for shape in SHAPES]
    freed = tuple(bytes(1000) for _ in range(60_000))
    del freed
    first = profiler.snapshot()
    del kept[1]
    second = profiler.snapshot()
    profiler.close()
    return [base64.b64encode(profile).decode() for profile in (first, second)]


print(json.dumps(by_tracemalloc() if sys.argv[1] == "tracemalloc" else by_profiler(sys.argv[1])))
