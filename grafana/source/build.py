"""Grafana's JSON of the dashboards, by grafana-foundation-sdk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from grafana_foundation_sdk.builders import bargauge, common, dashboard, heatmap, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as common_model
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import heatmap as heatmap_model
from grafana_foundation_sdk.models import prometheus as prometheus_model

from grafana.source import cluster, compare, llm_backend, load_generator, run
from grafana.source.panel import HEAT_STEP, Board, Kind, Link, Panel, Query, Variable

BOARDS = (run.BOARD, compare.BOARD, llm_backend.BOARD, load_generator.BOARD, cluster.BOARD)
FOLDER = Path(__file__).resolve().parents[1] / "dashboards"
TAG = "agentdyno"
_HEIGHT = 8
_LOW = 4  # of panels that are a number
_PROMETHEUS = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
# Tempo's uid is that of grafana/provisioning. Grafana fills in ${...}, so that stays as it is.
_EXPLORE = quote(
    '{"t":{"datasource":"tempo","queries":[{"refId":"A","datasource":{"type":"tempo","uid":"tempo"},'
    '"queryType":"traceql","limit":20,"query":"{resource.agentdyno.run.id=~\\"${run:regex}\\"}"}],'
    '"range":{"from":"${__from}","to":"${__to}"}}}',
    safe="${}:,[]._~",
)
_LINKS = {
    Link.TRACES: ("Traces of the run", f"/explore?schemaVersion=1&panes={_EXPLORE}"),
    Link.HEAP: ("Heap profile, now (of a make profile)", "http://${__field.labels.instance}/debug/pprof/heap"),
    Link.RUN: ("This run", "/d/agentdyno-run?var-run=${__field.labels.run}&${__url_time_range}"),
}


def write(folder: Path = FOLDER) -> list[Path]:
    """Write one file for each dashboard; returns them."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for board in BOARDS:
        file = folder / f"{board.uid}.json"
        file.write_text(text_of(board), encoding="utf-8")
        written.append(file)
    return written


def text_of(board: Board) -> str:
    """The JSON of one dashboard, always the same for the same source."""
    return JSONEncoder(sort_keys=True, indent=2).encode(_dashboard(board)) + "\n"


def _dashboard(board: Board) -> model.Dashboard:
    made = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags([TAG])
        .timezone("browser")
        .readonly()
        .refresh("5s")
        .time("now-15m", "now")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .link(dashboard.DashboardLink("AgentDyno").type(model.DashboardLinkType.DASHBOARDS).tags([TAG]).as_dropdown(True)
              .include_vars(True).keep_time(True))
        .with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    )  # fmt: skip
    for variable in board.variables:
        made = made.with_variable(_variable(variable))
    for row in board.rows:
        made = made.with_row(dashboard.Row(row.title))
        for panel in row.panels:
            made = made.with_panel(_panel(panel))
    built = made.build()
    for number, panel in enumerate(built.panels or [], start=1):
        panel.id_val = number
    return built


def _variable(variable: Variable) -> dashboard.QueryVariable:
    everything = model.VariableOption(text="All", value="$__all", selected=True)
    return (
        dashboard.QueryVariable(variable.name)
        .label(variable.name.capitalize())
        .description(variable.description)
        .datasource(_PROMETHEUS)
        .query({"query": variable.of, "refId": variable.name})
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.ALPHABETICAL_DESC if variable.name == "run" else model.VariableSort.ALPHABETICAL_ASC)
        .multi(variable.several)
        .include_all(True)
        .all_value(".*")
        .current(everything)
    )


def _panel(panel: Panel) -> Any:
    """A builder of the panel's kind; what all kinds have is set alike."""
    low = panel.kind in (Kind.NUMBER, Kind.WORD)
    made = (
        _BUILDERS[panel.kind]()
        .title(panel.title)
        .description(panel.description if panel.elsewhere is None else f"{panel.description} {panel.elsewhere}")
        .datasource(_PROMETHEUS)
        .unit(panel.unit)
        .span(panel.width)
        .height(_LOW if low else _HEIGHT)
        .no_value("-")
    )
    if panel.kind is Kind.BARS and not panel.signed:
        made = made.min(0)
    if panel.kind is Kind.TABLE:
        # The series are only there for their labels.
        without = {"excludeByName": {"Time": True, "Value": True}}
        made = made.with_transformation(model.DataTransformerConfig(id_val="organize", options=without))
    if panel.thresholds is not None:
        made = made.thresholds(_thresholds(*panel.thresholds)).color_scheme(
            dashboard.FieldColor().mode(model.FieldColorModeId.THRESHOLDS)
        ) if low else made.thresholds(_thresholds(*panel.thresholds))  # fmt: skip
    if panel.link is not None:
        title, url = _LINKS[panel.link]
        made = made.data_links([dashboard.DashboardLink(title).url(url).target_blank(True)])
    for letter, query in zip("ABCDEF", panel.queries, strict=False):
        made = made.with_target(_target(panel.kind, query, letter))
    return made


def _target(kind: Kind, query: Query, letter: str) -> prometheus.Dataquery:
    made = prometheus.Dataquery().ref_id(letter).expr(query.expr).datasource(_PROMETHEUS).legend_format(query.legend)
    if query.exemplars:
        made = made.exemplar(True)
    at_once = kind in (Kind.NUMBER, Kind.WORD, Kind.BARS, Kind.TABLE)
    made = made.instant() if at_once else made.range()
    if kind is Kind.HEAT:
        return made.interval(HEAT_STEP).format(prometheus_model.PromQueryFormat.HEATMAP)
    if kind is Kind.TABLE:
        return made.format(prometheus_model.PromQueryFormat.TABLE)
    return made.format(prometheus_model.PromQueryFormat.TIME_SERIES)


def _lines() -> timeseries.Panel:
    return (
        timeseries.Panel()
        .line_width(1)
        .fill_opacity(0)
        .show_points(common_model.VisibilityMode.NEVER)
        .axis_soft_min(0)
        .legend(common.VizLegendOptions().show_legend(True).placement(common_model.LegendPlacement.BOTTOM)
                .display_mode(common_model.LegendDisplayMode.TABLE).calcs(["lastNotNull", "max"]))
        .tooltip(common.VizTooltipOptions().mode(common_model.TooltipDisplayMode.MULTI)
                 .sort(common_model.SortOrder.DESCENDING))
    )  # fmt: skip


def _stack() -> timeseries.Panel:
    return _lines().fill_opacity(40).stacking(common.StackingConfig().mode(common_model.StackingMode.NORMAL).group("A"))


def _heat() -> heatmap.Panel:
    return (
        heatmap.Panel()
        .calculate(False)
        .color(heatmap.HeatmapColorOptions().mode(heatmap_model.HeatmapColorMode.SCHEME).scheme("Oranges").steps(64)
               .scale(heatmap_model.HeatmapColorScale.EXPONENTIAL).exponent(0.5))
        .y_axis(heatmap.YAxisConfig().unit("s"))
        .rows_frame(heatmap.RowsHeatmapOptions().layout(common_model.HeatmapCellLayout.LE))
        .filter_values(heatmap.FilterValueRange().le(1e-9))
        .cell_gap(1)
        .show_legend()
        .show_y_histogram()
        .exemplars_color("rgba(255,0,255,0.7)")
    )  # fmt: skip


def _number() -> stat.Panel:
    return (
        stat.Panel()
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .graph_mode(common_model.BigValueGraphMode.NONE)
        .color_mode(common_model.BigValueColorMode.VALUE)
        .color_scheme(dashboard.FieldColor().mode(model.FieldColorModeId.FIXED).fixed_color("text"))
    )


def _word() -> stat.Panel:
    return _number().text_mode(common_model.BigValueTextMode.NAME)


def _bars() -> bargauge.Panel:
    return (
        bargauge.Panel()
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .orientation(common_model.VizOrientation.HORIZONTAL)
        .display_mode(common_model.BarGaugeDisplayMode.BASIC)
        .color_scheme(dashboard.FieldColor().mode(model.FieldColorModeId.FIXED).fixed_color("blue"))
    )


def _thresholds(warn: float, bad: float) -> dashboard.ThresholdsConfig:
    return dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(
        [
            model.Threshold(value=None, color="green"),
            model.Threshold(value=warn, color="orange"),
            model.Threshold(value=bad, color="red"),
        ]
    )  # fmt: skip


_BUILDERS = {
    Kind.LINES: _lines,
    Kind.STACK: _stack,
    Kind.HEAT: _heat,
    Kind.NUMBER: _number,
    Kind.WORD: _word,
    Kind.BARS: _bars,
    Kind.TABLE: table.Panel,
}


def expressions(document: dict[str, Any]) -> list[str]:
    """All queries of a dashboard's JSON, those of its variables too."""
    found = [target["expr"] for panel in _panels(document) for target in panel.get("targets", ())]
    return [*found, *(v["query"]["query"] for v in document["templating"]["list"] if v["type"] == "query")]


def _panels(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for panel in document["panels"] for each in (panel, *panel.get("panels", ()))]


def loaded(board: Board) -> dict[str, Any]:
    """A dashboard's JSON as a reader of it has it."""
    document: dict[str, Any] = json.loads(text_of(board))
    return document
