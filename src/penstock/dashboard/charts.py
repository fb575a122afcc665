"""Line and bar charts, drawn by Vega in the browser.

A chart's specification depends only on the names in it; only its data change each second. So the browser
moves the lines instead of redrawing the chart.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, TypeVar

import altair as alt
import streamlit as st

from penstock.dashboard.poller import Point
from penstock.dashboard.style import GREY

HEIGHT = 170
LEAST_TOP = 1.0
"""Minimum upper end of the axis, so that noise stays small."""
LEGEND_CHARACTERS = 60
"""Length from which a legend has several rows."""
ERRORS_ONLY = 1
"""Vega log level: it would warn about charts without data, which all are for a moment."""
Spec = dict[str, Any]
Name = TypeVar("Name", bound=str)


def show_lines(
    key: str,
    lines: Mapping[Name, Sequence[Point]],
    colours: Mapping[Any, str],
    *,
    restarts: Sequence[datetime] = (),
    are_counts: bool = False,
) -> None:
    """Draw values over time; a restart of the server is a vertical line.

    All lines have the same times.

    Args:
        are_counts: the values are whole numbers, and so are the axis labels.
    """
    names = tuple(lines)
    spec = line_spec(names, tuple(colours[name] for name in names), are_counts=are_counts)
    st.vega_lite_chart(line_data(lines, restarts), spec, width="stretch", key=f"chart-{key}")


def line_data(lines: Mapping[Name, Sequence[Point]], restarts: Sequence[datetime]) -> dict[str, list[Any]]:
    """Columns of a line chart: times, one column per line, and the restarts."""
    times = [point.time for point in next(iter(lines.values()), ())]
    columns: dict[str, list[Any]] = {"time": times}
    for index, points in enumerate(lines.values()):
        columns[f"c{index}"] = [point.value for point in points]
    columns["restart"] = [time in restarts for time in times]
    return columns


@lru_cache(maxsize=256)
def line_spec(names: tuple[str, ...], colours: tuple[str, ...], *, are_counts: bool = False) -> Spec:
    """Specification of a line chart, without its data.

    Columns are named c0, c1 and so on: Vega would read topic names as paths.
    """
    named = {f"c{index}": name for index, name in enumerate(names)}
    time = alt.X("time:T", title=None, axis=alt.Axis(format="%H:%M:%S", tickCount=4, grid=False))
    steps = alt.Axis(tickCount=4, tickMinStep=1) if are_counts else alt.Axis(tickCount=4)
    value = alt.Y("value:Q", title=None, axis=steps, scale=alt.Scale(domainMin=0))
    base = alt.Chart(alt.NamedData(name="ours"))
    lines = (
        base.transform_fold(list(named), as_=["line", "value"])
        .mark_line(strokeWidth=2, interpolate="monotone", clip=True)
        .encode(x=time, y=value, color=_colour(named, colours))
    )
    restart = base.mark_rule(color=GREY, strokeDash=[4, 3], strokeWidth=1.5).encode(
        x=time, opacity=alt.condition("datum.restart", alt.value(1), alt.value(0))
    )
    top = base.mark_point(opacity=0, size=0).encode(y=alt.datum(LEAST_TOP))
    return _finish(alt.layer(lines, top, restart, _ruler(base, time, named)), HEIGHT)


def _colour(named: Mapping[str, str], colours: Sequence[str]) -> Any:
    """Colours of the columns, and their legend."""
    legend = alt.Legend(
        orient="top",
        columns=3 if sum(map(len, named.values())) > LEGEND_CHARACTERS else 0,
        labelExpr=_words(list(named.values())),
        labelFontSize=12,
        labelLimit=190,
        offset=4,
        padding=0,
        symbolType="stroke",
    )
    scale = alt.Scale(domain=list(named), range=list(colours))
    return alt.Color("line:N", title=None, scale=scale, legend=legend)


def _ruler(base: Any, time: Any, named: Mapping[str, str]) -> Any:
    """Vertical line at the mouse position, with all values of that moment as its tooltip."""
    hover = alt.selection_point(name="hover", on="pointermove", nearest=True, fields=["time"], empty=False)
    numbers = (alt.Tooltip(f"{column}:Q", format=",.2~f", title=name) for column, name in named.items())
    rule = base.mark_rule(color=GREY).encode(
        x=time,
        opacity=alt.condition(hover, alt.value(0.6), alt.value(0)),
        tooltip=[alt.Tooltip("time:T", format="%H:%M:%S", title="at"), *numbers],
    )
    return rule.add_params(hover)


def show_bars(
    key: str,
    rows: Mapping[str, Mapping[Name, float]],
    colours: Mapping[Name, str],
    *,
    unit: str = "",
    height: int | None = None,
) -> None:
    """Draw grouped bars: one group per row, one bar for each name with a colour; nothing without rows."""
    if not rows:
        return
    names = tuple(colours)
    data = {
        "row": [row for row in rows for _ in names],
        "name": [name for _ in rows for name in names],
        "value": [float(values.get(name, 0.0)) for values in rows.values() for name in names],
        "rank": [rank for rank, _ in enumerate(rows) for _ in names],
    }
    tall = height or _bars_height(len(rows), len(names))
    spec = bar_spec(names, tuple(colours.values()), unit, tall)
    st.vega_lite_chart(data, spec, width="stretch", key=f"chart-{key}")


def _bars_height(rows: int, names: int) -> int:
    """Height at which the bars can be distinguished."""
    return 50 + max(rows, 1) * (10 * names + 8)


@lru_cache(maxsize=256)
def bar_spec(names: tuple[str, ...], colours: tuple[str, ...], unit: str, height: int) -> Spec:
    """Specification of a bar chart, without its data."""
    chart = (
        alt.Chart(alt.NamedData(name="ours"))
        .mark_bar(cornerRadiusEnd=2)
        .encode(
            y=alt.Y("row:N", sort=alt.EncodingSortField("rank"), title=None, axis=alt.Axis(labelLimit=220)),
            yOffset=alt.YOffset("name:N", sort=list(names)),
            x=alt.X("value:Q", title=None, axis=alt.Axis(tickCount=5), scale=alt.Scale(domainMin=0)),
            color=alt.Color(
                "name:N",
                title=None,
                scale=alt.Scale(domain=list(names), range=list(colours)),
                legend=alt.Legend(orient="top", labelFontSize=12, offset=4, padding=0),
            ),
            tooltip=[
                alt.Tooltip("row:N", title="topic"),
                alt.Tooltip("name:N", title=" "),
                alt.Tooltip("value:Q", format=",.2~f", title=unit or "count"),
            ],
        )
    )
    return _finish(chart, height)


def _finish(chart: Any, height: int) -> Spec:
    """Specification as Vega takes it, without data."""
    spec: Spec = chart.properties(
        height=height, padding={"left": 0, "right": 4, "top": 0, "bottom": 0}
    ).to_dict()
    spec["usermeta"] = {"embedOptions": {"logLevel": ERRORS_ONLY}}
    spec.pop("data", None)
    for layer in spec.get("layer", ()):
        layer.pop("data", None)
    return spec


def _words(names: Sequence[str]) -> str:
    """Vega expression that maps c0, c1 and so on to names."""
    return f"{json.dumps(names)}[toNumber(slice(datum.label, 1))]"
