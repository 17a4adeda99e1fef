"""What a dashboard is made of, as data; `build.py` makes Grafana's JSON of it and the tests run its queries."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

# All series of a run carry these three labels.
CHOSEN = 'run=~"$run", framework=~"$framework", scenario=~"$scenario"'
FRAMEWORK = 'framework=~"$framework", scenario=~"$scenario"'

CLUSTER_ONLY = "Of kube-state-metrics and the kubelet's cAdvisor, which only a cluster has."
VLLM_ONLY = "The mock LLM has no model and so no such thing; vLLM has."
# Four scrapes, so that each column of a heat map has some to tell by.
HEAT_STEP = "20s"
HEAT_COLUMNS = "Each column is an interval of 20 s or more."


class Kind(Enum):
    """How a panel shows its queries."""

    LINES = "lines"
    STACK = "stack"
    HEAT = "heat"
    NUMBER = "number"
    WORD = "word"
    BARS = "bars"
    TABLE = "table"


class Link(Enum):
    """Where a click on a panel's series leads."""

    TRACES = "traces"
    HEAP = "heap"
    RUN = "run"


@dataclass(frozen=True, slots=True)
class Query:
    """legend: Grafana's format, {{label}}. exemplars: dots that lead to a trace."""

    expr: str
    legend: str = ""
    exemplars: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """unit: one of Grafana's. thresholds: where green ends and where red begins. signed: may be below 0, so that bars
    must not begin there. elsewhere: why a bench on one machine has no data for it; None: it has.
    """

    title: str
    description: str
    unit: str
    queries: tuple[Query, ...]
    kind: Kind = Kind.LINES
    width: int = 8
    link: Link | None = None
    thresholds: tuple[float, float] | None = None
    signed: bool = False
    elsewhere: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice at the top of a dashboard: all values of a label."""

    name: str
    description: str
    of: str
    several: bool = True


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard; uid is also its file's name."""

    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...]

    def panels(self) -> list[Panel]:
        """All panels, in order."""
        return [panel for row in self.rows for panel in row.panels]


RUN_VARIABLE = Variable(
    "run", "The runs to show: folders under runs/.", 'label_values({__name__=~"agentdyno_.+"}, run)'
)
FRAMEWORK_VARIABLE = Variable(
    "framework", "The frameworks to show.", 'label_values({__name__=~"agentdyno_.+"}, framework)'
)
SCENARIO_VARIABLE = Variable("scenario", "What requests ask for.", 'label_values({__name__=~"agentdyno_.+"}, scenario)')
OF_A_RUN = (RUN_VARIABLE, FRAMEWORK_VARIABLE, SCENARIO_VARIABLE)


def rate(metric: str, by: str, more: str = "", window: str = "$__rate_interval") -> str:
    """The sum of a counter's rates, by labels."""
    return f"sum by ({by}) (rate({metric}{{{CHOSEN}{', ' if more else ''}{more}}}[{window}]))"


def counts(metric: str) -> str:
    """How many came into each of a histogram's buckets in each of a heat map's columns, which do not overlap."""
    return f"sum by (le) (increase({metric}_bucket{{{CHOSEN}}}[$__interval]))"


def quantile(q: float, metric: str, by: str = "run", more: str = "") -> str:
    """A quantile of a histogram, exact to its buckets."""
    return f"histogram_quantile({q}, {rate(metric + '_bucket', f'{by}, le', more)})"


def mean(metric: str, by: str = "run") -> str:
    """A histogram's mean."""
    return f"{rate(metric + '_sum', by)} / {rate(metric + '_count', by)}"
