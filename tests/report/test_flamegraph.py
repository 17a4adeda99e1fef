"""The flame-graph page holds all it needs, is no way out of its script, and its tree adds up."""

import json
import re
from typing import Any

from agentdyno.analysis.heap import Attribution
from agentdyno.contract.pprof import HEAP_TYPES, Frame, Profile, Sample, difference
from agentdyno.report.flamegraph import difference_page, snapshot_page

ROOT = Frame("main", "agentdyno/host/serve.py", 50)
IMPORT = Frame("_find_and_load", "<frozen importlib._bootstrap>", 1_176)
EVIL = Frame("</script><script>alert(1)</script>", 'site-packages/x/"><b>.py', 1)
ATTRIBUTION = Attribution(())


def profile(*samples: Sample) -> Profile:
    return Profile(HEAP_TYPES, samples, time_ns=1_700_000_000_000_000_000, comments=("<sampled>",))


ONE = profile(
    Sample((Frame("a", "site-packages/p/a.py", 3), IMPORT, ROOT), (4, 40, 2, 20)),
    Sample((Frame("a", "site-packages/p/a.py", 9), ROOT), (1, 10, 1, 10)),
    Sample((IMPORT, ROOT), (1, 7, 1, 7)),
    Sample((EVIL, ROOT), (1, 5, 1, 5)),
)


def data(page: str) -> Any:
    return json.loads(re.findall(r'(?s)<script type="application/json" id="data">(.*?)</script>', page)[0])


def boxes(page: str) -> dict[tuple[str, ...], list[int]]:
    """The values of each box, by the names from the root to it."""
    found: dict[tuple[str, ...], list[int]] = {}
    content = data(page)
    waiting = [(content["root"], ())]
    while waiting:
        (number, values, children), above = waiting.pop()
        path = (*above, content["frames"][number][0])
        found[path] = values
        waiting += [(child, path) for child in children]
    return found


def test_the_tree_adds_up_with_lines_and_the_import_system_left_out() -> None:
    page = snapshot_page(ONE, ATTRIBUTION, "bare", "30 s of 60 s")
    assert boxes(page) == {
        ("all",): [42, 5, 62, 7],
        ("all", "main"): [42, 5, 62, 7],
        ("all", "main", "a"): [30, 3, 50, 5],
        ("all", "main", "_find_and_load"): [7, 1, 7, 1],
        ("all", "main", EVIL.function): [5, 1, 5, 1],
    }
    assert [view["title"] for view in data(page)["views"]] == [
        "In use", "Objects in use", "Allocated", "Objects allocated",
    ]  # fmt: skip
    assert "bare: heap at 30 s of 60 s" in page
    assert "2023-11-14 22:13:20 UTC" in page


def test_a_difference_shows_what_grew_and_what_shrank() -> None:
    later = profile(
        Sample((Frame("a", "site-packages/p/a.py", 3), ROOT), (9, 90, 5, 55)),
        Sample((Frame("b", "site-packages/p/a.py", 5), ROOT), (9, 90, 0, 0)),
    )
    earlier = profile(
        Sample((Frame("a", "site-packages/p/a.py", 3), ROOT), (4, 40, 2, 20)),
        Sample((Frame("b", "site-packages/p/a.py", 5), ROOT), (9, 90, 3, 30)),
    )
    page = difference_page(difference(later, earlier), ATTRIBUTION, "bare", 60.0)
    assert boxes(page)["all", "main"] == [35, 30, 3, 3]
    assert boxes(page)["all", "main", "a"] == [35, 0, 3, 0]
    assert boxes(page)["all", "main", "b"] == [0, 30, 0, 3]
    assert "growth of the heap in 60 s" in page
    assert "net +0.00 MB" in page


def test_the_page_is_closed_in_itself() -> None:
    page = snapshot_page(ONE, ATTRIBUTION, "<i>bare</i>", "end")
    assert "<script>alert" not in page
    assert "<i>bare" not in page
    assert "&lt;sampled&gt;" in page
    assert "{{" not in page
    addresses = set(re.findall(r"https?://[^\"' )]+", page))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # the name of SVG, which no browser fetches
    assert not re.search(r"(?i)<(link|img|iframe)|@import|\burl\(|\bsrc=", page)


def test_an_empty_profile_is_a_page_too() -> None:
    assert boxes(snapshot_page(profile(), ATTRIBUTION, "bare", "0 s of 0 s")) == {("all",): [0, 0, 0, 0]}


def test_a_stack_of_any_depth_is_drawn() -> None:
    deep = tuple(Frame(f"f{n}", "site-packages/p/a.py", n) for n in range(300))
    assert len(boxes(snapshot_page(profile(Sample(deep, (1, 1, 1, 1))), ATTRIBUTION, "bare", "x"))) == 301
