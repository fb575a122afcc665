"""The parts of the page of a lake."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

import streamlit as st

from penstock.dashboard.charts import show_bars
from penstock.dashboard.colours import ACCENT, Level
from penstock.dashboard.lakes.audits import Audit
from penstock.dashboard.lakes.beginning import audit_command
from penstock.dashboard.lakes.contents import LakeView, Share
from penstock.dashboard.lakes.holds import HoldRow, LogSide
from penstock.dashboard.lakes.insights import Insight
from penstock.dashboard.panels import Cell, Tile, show_heading, show_table, show_tiles
from penstock.dashboard.times import ago, to_second
from penstock.dashboard.units import NOTHING, count, duration, percent, size

SHOWN_DAYS = 8
BAR_PX, TALLEST_PX = 22, 400
SOON_S = 3_600.0
"""A hold that lapses within this time wants to be looked at."""

Cells = list[Cell | str]


def show_contents(view: LakeView, log: LogSide | None) -> None:
    """Draw how much there is, and how far it is behind the log."""
    manifest, span = view.manifest, view.span
    until = "" if span is None else f"until {span[1]:%Y-%m-%d %H:%M} UTC"
    show_tiles(
        [
            Tile("lake-rows", "Messages", count(manifest.rows), note=until),
            Tile("lake-bytes", "Size", size(manifest.bytes), note=_each(manifest.bytes, manifest.rows)),
            Tile(
                "lake-files",
                "Files",
                count(len(manifest.files)),
                note=f"{count(len(manifest.retired))} retired",
            ),
            Tile("lake-days", "Days", count(len(view.days)), note=f"{count(manifest.buckets)} buckets"),
            Tile("lake-version", "Version", count(manifest.version), note=f"{_ago(view.changed_at)} ago"),
            behind_tile(log),
            Tile(
                "lake-gaps",
                "Not in the log any more",
                count(sum(gap.last - gap.first + 1 for gap in manifest.gaps)),
                note="offsets, declared missing",
                level=Level.ELEVATED if manifest.gaps else Level.GOOD,
            ),
        ]
    )
    st.html(_place_html(view))


def _place_html(view: LakeView) -> str:
    """Which lake this is, and which topics it takes; the whole path is what a mouse over it shows."""
    path, filters = view.path.parent, ", ".join(view.manifest.filters) or "#"
    return (
        f'<div class="nothing" title="{escape(str(path), quote=True)}">'
        f"Folder {escape(path.name)}, topics {escape(filters)}</div>"
    )


def behind_tile(log: LogSide | None) -> Tile:
    """How much the log has that the lake has not."""
    if log is None:
        return Tile("lake-behind", "Behind the log", NOTHING, note="the server does not tell")
    if not log.is_there:
        return Tile("lake-behind", "Behind the log", NOTHING, note="the server has no log")
    if log.lag is None:
        return Tile(
            "lake-behind", "Behind the log", NOTHING, note="another server's log", level=Level.ELEVATED
        )
    return Tile("lake-behind", "Behind the log", count(log.lag), note="messages, at most")


def show_days(view: LakeView) -> None:
    """Draw what each day has."""
    show_heading("Days", f"the last {SHOWN_DAYS}" if len(view.days) > SHOWN_DAYS else "UTC")
    rows = _share_rows(view.days[:SHOWN_DAYS])
    show_table("lake-days", ("day", "files", "size", "messages"), rows, numbers=3, empty="No messages yet.")


def show_buckets(view: LakeView) -> None:
    """Draw how evenly messages fall into the buckets."""
    show_heading("Buckets", "messages by the bucket of their topic")
    bars = {f"bucket {share.name}": {"messages": float(share.rows)} for share in view.buckets}
    height = min(50 + BAR_PX * len(bars), TALLEST_PX)
    show_bars("lake-buckets", bars, {"messages": ACCENT}, unit="messages", height=height)


def _share_rows(shares: Sequence[Share]) -> list[Cells]:
    """Days or buckets as rows of a table."""
    return [[each.name, count(each.files), size(each.bytes), count(each.rows)] for each in shares]


def show_commits(view: LakeView) -> None:
    """Draw the last changes."""
    show_heading("Last commits")
    rows: list[Cells] = [
        [
            count(each.version),
            f"{to_second(each.at)} UTC",
            each.by,
            f"+{count(each.files_added)} −{count(each.files_removed)}",  # noqa: RUF001
            size(each.bytes),
            count(each.rows),
        ]
        for each in view.commits
    ]
    columns = ("version", "time", "by", "files", "size", "messages")
    show_table("lake-commits", columns, rows, numbers=3, empty="No commits.")


def show_holds(log: LogSide) -> None:
    """Draw who keeps the log from letting go."""
    show_heading("Holds", "the log keeps what is behind them, until they lapse")
    columns = ("hold", "owner", "lapses in", "messages behind")
    rows = [hold_cells(hold) for hold in log.holds]
    show_table("lake-holds", columns, rows, numbers=2, empty="Nobody holds the log.")


def hold_cells(hold: HoldRow) -> Cells:
    """One hold as a row of a table."""
    is_soon = hold.lapses_in_s < SOON_S
    return [
        f"{hold.name} (this lake)" if hold.is_of_lake else hold.name,
        hold.owner or "anonymous",
        Cell(duration(max(hold.lapses_in_s, 0.0)), Level.ELEVATED if is_soon else Level.GOOD),
        count(hold.lag),
    ]


def show_insight(insight: Insight) -> None:
    """Draw the newest window of one table of the insights."""
    shown = len(insight.rows)
    of_all = f", {shown} of {count(insight.rows_in_all)}" if insight.rows_in_all > shown else ""
    show_heading(insight.table, f"window of {to_second(insight.window_start)} UTC{of_all}")
    columns = list(insight.rows[0])
    rows = [[cell_text(name, row[name]) for name in columns] for row in insight.rows]
    texts = sum(isinstance(value, str) for value in insight.rows[0].values())
    titles = [name.replace("_", " ") for name in columns]
    show_table(f"insight-{insight.table}", titles, rows, numbers=len(columns) - texts, empty="")


def cell_text(name: str, value: Any) -> str:
    """A value of the insights as people read it."""
    if value is None:
        return NOTHING
    if isinstance(value, str):
        return value
    if name == "share":
        return percent(value)
    if name.startswith("bytes"):
        return size(value)
    return f"{value:,.2f}" if isinstance(value, float) else count(value)


def show_audit(audit: Audit | None, lake: Path, address: str) -> None:
    """Draw the last audit that was kept, or how to keep one."""
    show_heading(
        "Last audit", "" if audit is None else f"{_ago(audit.at)} ago, of version {count(audit.version)}"
    )
    if audit is None:
        st.caption("No report is kept in this lake. An audit reads every file; this keeps its report here:")
        st.code(audit_command(lake, address), language="bash")
        return
    with st.container(key="lake-audit"):
        if audit.is_clean:
            st.success(
                f"All {count(audit.rows)} messages are there, once and in order.", icon=":material/verified:"
            )
        else:
            st.error(f"Something is wrong: {findings_text(audit.findings)}.", icon=":material/gpp_bad:")


def findings_text(findings: Mapping[str, int]) -> str:
    """What an audit has found, in words."""
    found = [f"{count(number)} {name.replace('_', ' ')}" for name, number in findings.items() if number]
    return ", ".join(found) or "see the report"


def _each(total: int, rows: int) -> str:
    return f"{size(total / rows)} a message" if rows else ""


def _ago(time: datetime) -> str:
    return ago(time, datetime.now(UTC))
