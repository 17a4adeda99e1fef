"""Attribution of stacks to packages, and the top tens, from a profile that is known to the byte."""

import pytest

from agentdyno.analysis.heap import Attribution, Kind, Package, top
from agentdyno.contract.pprof import HEAP_TYPES, Frame, Profile, Sample

HOST = Frame("Invocation.run", "agentdyno/host/invocation.py", 80)
ADAPTER = Frame("LangChain.invoke", "adapters/langchain/adapter.py", 40)
FRAMEWORK = Frame("RunnableSequence.ainvoke", "site-packages/langchain_core/runnables/base.py", 3_000)
CLIENT = Frame("AsyncAPIClient.post", "site-packages/openai/_base_client.py", 1_900)
JSON = Frame("raw_decode", "python/json/decoder.py", 354)
ATTRIBUTION = Attribution({"langchain", "langchain_core"})


@pytest.mark.parametrize(
    ("file", "name", "kind"),
    [
        ("site-packages/langchain_core/tools.py", "langchain_core", Kind.FRAMEWORK),
        ("site-packages/openai/_models.py", "openai", Kind.CLIENT),
        ("site-packages/httpx/_client.py", "httpx", Kind.CLIENT),
        ("site-packages/uvicorn/server.py", "uvicorn", Kind.HOST),
        ("site-packages/pydantic/main.py", "pydantic", Kind.OTHER),
        ("site-packages/typing_extensions.py", "typing_extensions", Kind.OTHER),
        ("agentdyno/host/app.py", "agentdyno", Kind.HOST),
        ("adapters/bare/adapter.py", "bare", Kind.ADAPTER),
        ("adapters/lightagent/lightagent/agent.py", "lightagent", Kind.FRAMEWORK),
        ("python/json/decoder.py", "json", Kind.LIBRARY),
        ("python/typing.py", "typing", Kind.LIBRARY),
        ("<frozen importlib._bootstrap>", "interpreter", Kind.LIBRARY),
        ("<string>", "interpreter", Kind.LIBRARY),
        ("", "interpreter", Kind.LIBRARY),
        ("elsewhere.py", "elsewhere.py", Kind.OTHER),
    ],
)
def test_a_file_belongs_to_a_package(file: str, name: str, kind: Kind) -> None:
    assert ATTRIBUTION.package(file) == Package(name, kind)


def test_the_standard_library_works_for_its_caller() -> None:
    stack = (JSON, CLIENT, FRAMEWORK, ADAPTER, HOST)
    assert ATTRIBUTION.own(stack) == Package("json", Kind.LIBRARY)
    assert ATTRIBUTION.caused(stack) == Package("openai", Kind.CLIENT)
    assert ATTRIBUTION.caused((JSON,)) == Package("json", Kind.LIBRARY)
    assert ATTRIBUTION.caused(()) == Package("interpreter", Kind.LIBRARY)


def profile(time_ns: int, *samples: tuple[tuple[Frame, ...], tuple[int, int, int, int]]) -> Profile:
    return Profile(HEAP_TYPES, tuple(Sample(*sample) for sample in samples), time_ns=time_ns, period=32_768)


FIRST = profile(
    1_000_000_000,
    ((JSON, CLIENT, HOST), (10, 1_000, 5, 500)),
    ((FRAMEWORK, HOST), (4, 400, 4, 400)),
    ((ADAPTER, HOST), (3, 300, 3, 300)),
)
LAST = profile(
    31_000_000_000,
    ((JSON, CLIENT, HOST), (100, 10_000, 9, 900)),
    ((JSON, FRAMEWORK, HOST), (1, 50, 1, 50)),
    ((FRAMEWORK, HOST), (4, 400, 3, 300)),
    ((FRAMEWORK, FRAMEWORK, HOST), (7, 700, 0, 0)),
)


def test_the_top_tens() -> None:
    found = top(FIRST, LAST, ATTRIBUTION)
    assert (found.seconds, found.inuse_bytes, found.alloc_objects, found.growth_bytes) == (30.0, 1_250, 112, 50)
    in_use = [(site.function, site.caused_by, site.inuse_bytes) for site in found.by_inuse_bytes]
    assert in_use == [
        ("raw_decode", "openai", 900),
        ("RunnableSequence.ainvoke", "langchain_core", 300),
        ("raw_decode", "langchain_core", 50),
    ]
    allocated = [(site.function, site.alloc_objects) for site in found.by_alloc_objects]
    assert allocated == [("raw_decode", 100), ("RunnableSequence.ainvoke", 11), ("raw_decode", 1)]
    # What the first had and the last has no more shrank; only what grew is in the list.
    assert [(site.growth_bytes, site.growth_objects) for site in found.by_growth_bytes] == [(400, 4), (50, 1)]
    assert {kind: size for kind, size in found.kinds.items() if size} == {"framework": 350, "LLM client": 900}


def test_the_packages_add_up() -> None:
    found = top(FIRST, LAST, ATTRIBUTION)
    assert sum(row.own_inuse_bytes for row in found.packages) == found.inuse_bytes
    assert sum(row.caused_inuse_bytes for row in found.packages) == found.inuse_bytes
    assert sum(row.caused_growth_bytes for row in found.packages) == found.growth_bytes
    assert sum(row.caused_alloc_objects for row in found.packages) == found.alloc_objects
    rows = {row.package: row for row in found.packages}
    assert (rows["json"].own_inuse_bytes, rows["json"].caused_inuse_bytes) == (950, 0)
    assert rows["langchain"].caused_growth_bytes == -300


def test_there_are_ten_at_most() -> None:
    many = profile(0, *(((Frame(f"f{n}", "python/re.py", n), HOST), (n, n, n, n)) for n in range(1, 31)))
    found = top(profile(0), many, ATTRIBUTION)
    for rows in (found.by_inuse_bytes, found.by_alloc_objects, found.by_growth_bytes):
        assert [row.line for row in rows] == list(range(30, 20, -1))
