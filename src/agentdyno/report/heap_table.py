"""What holds the heap, as tables for the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from agentdyno.analysis.heap import HeapTop, Site
from agentdyno.analysis.metrics import rounded

_MB = 1e6
_PACKAGES = 8


def print_heap(table: HeapTop | None, cost: str | None, console: Console) -> None:
    """The three top tens and the packages. cost: what profiling costs, in words; None when not measured."""
    if table is None:
        console.print(Text("There is no heap profile: the host gave none."))
        return
    growth = f"{table.growth_bytes / _MB:+.1f} MB in {table.seconds:.0f} s"
    console.print(Text(f"\nHeap in use at the end: {table.inuse_bytes / _MB:.1f} MB, {growth} (sampled)", "bold"))
    _print_sites("Most bytes in use", "MB", [(s.inuse_bytes / _MB, s) for s in table.by_inuse_bytes], console)
    _print_sites("Most objects allocated", "", [(float(s.alloc_objects), s) for s in table.by_alloc_objects], console)
    _print_sites("Most growth", "MB", [(s.growth_bytes / _MB, s) for s in table.by_growth_bytes], console)
    total = sum(table.kinds.values()) or 1
    kinds = [(kind, value) for kind, value in table.kinds.items() if value]
    packages = [(row.package, row.caused_inuse_bytes) for row in table.packages[:_PACKAGES]]
    for title, shares in (("In use on behalf of", kinds), ("By package", packages)):
        parts = [f"{name} {value / total:.0%}" for name, value in sorted(shares, key=lambda share: -share[1])]
        console.print(Text(f"{title}: {', '.join(parts)}."))
    console.print(Text(cost or "What profiling costs was not measured."))


def _print_sites(title: str, unit: str, rows: list[tuple[float, Site]], console: Console) -> None:
    """Lines, not a table: a path that a table would break or cut is no longer a path."""
    console.print(Text(f"\n{title}", "italic"))
    figures = [f"{rounded(value)} {unit}".rstrip() for value, _ in rows]
    width = max([len(figure) for figure in figures], default=0)
    for figure, (_, site) in zip(figures, rows, strict=True):
        cause = "" if site.caused_by == site.package else f" for {site.caused_by}"
        place = Text(f"  {site.file}:{site.line}{cause} ({site.caused_by_kind.value})", "dim")
        console.print(Text.assemble(f"  {figure:>{width}}  {site.function}", place))
    if not rows:
        console.print(Text("  none"))
