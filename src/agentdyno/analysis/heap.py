"""Who holds the heap: each stack's memory attributed to a package, and the sites that hold, allocate and grow most."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import cache
from typing import NamedTuple

import msgspec

from agentdyno.contract.pprof import ALLOC_OBJECTS, ALLOC_SPACE, INUSE_OBJECTS, INUSE_SPACE, Frame, Profile, Stack

TOP = 10
_CLIENTS = frozenset(
    {
        *(
            "openai",
            "anthropic",
            "litellm",
            "tiktoken",
            "jiter",
            "aiohttp",
            "aiosignal",
            "aiohappyeyeballs",
            "frozenlist",
        ),
        *(
            "multidict",
            "yarl",
            "propcache",
            "httpx",
            "httpx2",
            "httpcore",
            "httpcore2",
            "h11",
            "h2",
            "anyio",
            "sniffio",
        ),
        *("requests", "urllib3", "certifi", "idna"),
    }
)
_HOST = frozenset({"uvicorn", "uvloop", "httptools", "msgspec", "orjson", "prometheus_client"})


class Kind(StrEnum):
    """Whose code a package is. OTHER: what the framework, or its client, brings along."""

    FRAMEWORK = "framework"
    CLIENT = "LLM client"
    ADAPTER = "adapter"
    HOST = "host"
    LIBRARY = "standard library"
    OTHER = "dependency"


class Package(NamedTuple):
    """A package by its import name."""

    name: str
    kind: Kind


class Attribution:
    """Says which package a stack's memory belongs to. framework: import names of the framework's own distributions."""

    def __init__(self, framework: Iterable[str]) -> None:
        self._framework = frozenset(framework)
        self.package = cache(self._package)

    def own(self, stack: Stack) -> Package:
        """The package whose function allocated."""
        return self.package(stack[0].file) if stack else Package("interpreter", Kind.LIBRARY)

    def caused(self, stack: Stack) -> Package:
        """The package nearest to the allocation that is not the standard library: on whose behalf that allocated."""
        packages = (self.package(frame.file) for frame in stack)
        return next((package for package in packages if package.kind is not Kind.LIBRARY), self.own(stack))

    def _package(self, file: str) -> Package:
        root, _, rest = file.partition("/")
        if root == "site-packages":
            name = rest.partition("/")[0].partition(".")[0]
            return Package(name, self._installed(name))
        if root == "agentdyno":
            return Package("agentdyno", Kind.HOST)
        if root == "adapters":  # a library that stands beside its adapter is a framework of its own
            folder, _, below = rest.partition("/")
            name, within, _ = below.partition("/")
            return Package(name, Kind.FRAMEWORK) if within else Package(folder, Kind.ADAPTER)
        if root == "python":
            return Package(rest.partition("/")[0].removesuffix(".py"), Kind.LIBRARY)
        if not file or file.startswith("<"):  # frozen modules, and code that dataclasses and the like have made
            return Package("interpreter", Kind.LIBRARY)
        return Package(file, Kind.OTHER)

    def _installed(self, name: str) -> Kind:
        if name in self._framework:
            return Kind.FRAMEWORK
        if name in _CLIENTS:
            return Kind.CLIENT
        return Kind.HOST if name in _HOST else Kind.OTHER


class Site(msgspec.Struct, frozen=True):
    """One place in the code that allocates. package, kind: of the function itself; caused_by: on whose behalf.

    inuse: in the last snapshot. alloc: since the profiler's start. growth: last minus first, of what is in use.
    """

    function: str
    file: str
    line: int
    package: str
    kind: Kind
    caused_by: str
    caused_by_kind: Kind
    inuse_bytes: int
    inuse_objects: int
    alloc_bytes: int
    alloc_objects: int
    growth_bytes: int
    growth_objects: int


class PackageTotal(msgspec.Struct, frozen=True):
    """What a package holds: in its own functions, and on its behalf, the standard library's counted to its caller."""

    package: str
    kind: Kind
    own_inuse_bytes: int
    caused_inuse_bytes: int
    caused_alloc_objects: int
    caused_growth_bytes: int


class HeapTop(msgspec.Struct, frozen=True, kw_only=True):
    """`heap/top10.json`. Totals are of the profiler's scaled samples: an estimate, of Python's own allocations only."""

    sample_bytes: int
    seconds: float
    inuse_bytes: int
    inuse_objects: int
    alloc_bytes: int
    alloc_objects: int
    growth_bytes: int
    by_inuse_bytes: list[Site]
    by_alloc_objects: list[Site]
    by_growth_bytes: list[Site]
    packages: list[PackageTotal]
    kinds: dict[str, int]


def top(first: Profile, last: Profile, attribution: Attribution) -> HeapTop:
    """The table, from the first and the last snapshot of a run. kinds: bytes in use on behalf of each kind."""
    sites = _sites(first, last, attribution)
    packages = _packages(sites)
    kinds = {kind.value: sum(p.caused_inuse_bytes for p in packages if p.kind is kind) for kind in Kind}
    return HeapTop(
        sample_bytes=last.period,
        seconds=round((last.time_ns - first.time_ns) / 1e9, 3),
        inuse_bytes=last.total(INUSE_SPACE),
        inuse_objects=last.total(INUSE_OBJECTS),
        alloc_bytes=last.total(ALLOC_SPACE),
        alloc_objects=last.total(ALLOC_OBJECTS),
        growth_bytes=last.total(INUSE_SPACE) - first.total(INUSE_SPACE),
        by_inuse_bytes=_most(sites, lambda site: site.inuse_bytes),
        by_alloc_objects=_most(sites, lambda site: site.alloc_objects),
        by_growth_bytes=_most(sites, lambda site: site.growth_bytes),
        packages=packages,
        kinds=kinds,
    )


def _most(sites: list[Site], value: Callable[[Site], int]) -> list[Site]:
    """The largest; a site with nothing, or less than nothing, is none."""
    return [site for site in sorted(sites, key=value, reverse=True)[:TOP] if value(site) > 0]


def _sites(first: Profile, last: Profile, attribution: Attribution) -> list[Site]:
    """Every site of the last profile, those that only the first has with it."""
    order = (INUSE_SPACE, INUSE_OBJECTS, ALLOC_SPACE, ALLOC_OBJECTS)
    found: dict[tuple[Frame, Package], list[int]] = {}
    packages: dict[Frame, Package] = {}
    for profile, sign in ((last, 1), (first, -1)):
        columns = [profile.types.index(type_) for type_ in order]
        for sample in profile.samples:
            leaf = sample.stack[0] if sample.stack else Frame("", "", 0)
            packages[leaf] = attribution.own(sample.stack)
            now = [sample.values[column] for column in columns]
            values = found.setdefault((leaf, attribution.caused(sample.stack)), [0] * 6)
            more = [*(now if sign > 0 else (0, 0, 0, 0)), sign * now[0], sign * now[1]]
            values[:] = [was + by for was, by in zip(values, more, strict=True)]
    return [
        Site(
            *(leaf.function or "(interpreter)", leaf.file, leaf.line),
            *packages[leaf],
            *(cause.name, cause.kind),
            *values,
        )
        for (leaf, cause), values in found.items()
    ]


def _packages(sites: list[Site]) -> list[PackageTotal]:
    totals: dict[Package, list[int]] = {}
    for site in sites:
        own = totals.setdefault(Package(site.package, site.kind), [0] * 4)
        own[0] += site.inuse_bytes
        caused = totals.setdefault(Package(site.caused_by, site.caused_by_kind), [0] * 4)
        for at, value in enumerate((site.inuse_bytes, site.alloc_objects, site.growth_bytes), start=1):
            caused[at] += value
    rows = [PackageTotal(package.name, package.kind, *values) for package, values in totals.items()]
    return sorted(rows, key=lambda row: -row.caused_inuse_bytes)
