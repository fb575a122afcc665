"""Lake page: content of the archive, its lag behind the log, holds, insights and the last audit."""

import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

import streamlit as st

from penstock.common.text import ABSENT, count_text, duration_text, percent_text, size_text
from penstock.dashboard.charts import show_bars
from penstock.dashboard.pages.lake_data import (
    REPORT,
    Audit,
    HoldRow,
    Insight,
    LakeView,
    LogState,
    PartitionSize,
    insight_grains,
    insight_tables,
    last_audit,
    newest_window,
    read_lake,
    read_log_state,
)
from penstock.dashboard.poller import Source, current_poller
from penstock.dashboard.style import ACCENT, Level
from penstock.dashboard.widgets import (
    Cell,
    Tile,
    age_text,
    escape_markdown,
    second_text,
    show_errors,
    show_heading,
    show_nothing,
    show_table,
    show_tiles,
)
from penstock.errors import PenstockError
from penstock.lake import Manifest

FOLDER = Path("lake")
"""Placeholder for the lake in commands."""
SHOWN_DAYS = 8
BAR_PX, TALLEST_PX = 22, 400
SOON_S = 3_600.0
"""A hold that lapses within this time is highlighted."""
Cells = list[Cell | str]
REFRESH_S = 5.0


def show() -> None:
    """Draw the lake given by `--lake`, or how to set one up."""
    lake = current_poller().source.lake
    if lake is None:
        _show_none()
        return
    _show_lake(lake)
    show_heading("Insights", "the newest window of each table")
    _show_insights(lake)
    _show_audit(lake)


@st.fragment(run_every=REFRESH_S)
def _show_none() -> None:
    show_setup(current_poller().source)
    _show_log(_read_log(None))


@st.fragment(run_every=REFRESH_S)
def _show_lake(lake: Path) -> None:
    view = _read_lake(lake)
    if view is None:
        _show_none()
        return
    log = _read_log(view.manifest)
    show_contents(view, log)
    history, spread = st.columns(2)
    with history:
        show_days(view)
        show_commits(view)
    with spread:
        show_buckets(view)
        _show_log(log)


def _read_lake(lake: Path) -> LakeView | None:
    """Read the lake; on failure draw the error and return None."""
    try:
        return read_lake(lake)
    except (PenstockError, OSError) as error:
        with st.container(key="lake-failure"):
            st.warning(escape_markdown(str(error)), icon=":material/database_off:")
        return None


def _read_log(manifest: Manifest | None) -> LogState | None:
    """Read the state of the log; on failure draw the error and return None."""
    if current_poller().is_silent:
        show_nothing("The server does not respond.")
        return None
    try:
        with current_poller().source.connect() as client:
            return read_log_state(client, manifest)
    except PenstockError as error:
        st.warning(escape_markdown(str(error)), icon=":material/error:")
        return None


def _show_log(log: LogState | None) -> None:
    if log is not None and not log.is_there:
        show_memory_only()
    elif log is not None:
        show_holds(log)


@st.fragment(run_every=REFRESH_S)
def _show_insights(lake: Path) -> None:
    show_errors(lambda: _show_windows(lake))


def _show_windows(lake: Path) -> None:
    grains = insight_grains(lake)
    if not grains:
        st.caption("No insights yet. Create them with `penstock pipeline insights`.")
        return
    grain = st.segmented_control(
        "Window", grains, default=grains[0], key="lake-grain", label_visibility="collapsed", required=True
    )
    found = [
        insight for name in insight_tables(lake) if (insight := newest_window(lake, name, grain)) is not None
    ]
    for column, insights in zip(st.columns(2), (found[::2], found[1::2]), strict=True):
        with column:
            for insight in insights:
                show_insight(insight)


@st.fragment(run_every=REFRESH_S)
def _show_audit(lake: Path) -> None:
    show_errors(lambda: show_audit_report(last_audit(lake), lake, current_poller().source.address))


def setup_commands(source: Source) -> str:
    """Shell commands that start an archive and its dashboard."""
    lake = shlex.quote(str(source.lake or FOLDER))
    server = f"--address {shlex.quote(source.address)}"
    if source.user:
        server += f" --user {shlex.quote(source.user)} --password-file FILE"
    return "\n".join(
        (
            "pip install '.[spark]'  # in a checkout of Penstock",
            f"penstock pipeline archive --lake {lake} {server} --follow",
            f"penstock pipeline insights --lake {lake} {server} --follow",
            f"penstock dashboard --lake {lake} {server}",
        )
    )


def audit_command(lake: Path, address: str) -> str:
    """Shell command that audits a lake and stores the report where the dashboard finds it."""
    folder = shlex.quote(str(lake))
    report = shlex.quote(str(lake / REPORT))
    return f"penstock pipeline audit --lake {folder} --address {shlex.quote(address)} -o json > {report}"


def show_setup(source: Source) -> None:
    """Draw what a lake is for, and how to set one up."""
    with st.container(key="lake-beginning"):
        if source.lake is None:
            st.info("The dashboard was started without `--lake`.", icon=":material/database_off:")
        st.write(
            "A lake archives the log in Parquet files for Spark, DuckDB and pandas, for as long as you "
            "want. Start an archive, then the dashboard with it:"
        )
        st.code(setup_commands(source), language="bash")


def show_memory_only() -> None:
    """Draw that this server has no log to archive."""
    with st.container(key="lake-memory-only"):
        st.warning(
            "This server has no data directory, so there is no log to archive. Start it with "
            "`penstock serve --data-dir data`.",
            icon=":material/memory:",
        )


def show_contents(view: LakeView, log: LogState | None) -> None:
    """Draw the size of the lake and its lag behind the log."""
    manifest, span = view.manifest, view.span
    until = "" if span is None else f"until {span[1]:%Y-%m-%d %H:%M} UTC"
    show_tiles(
        [
            Tile("lake-rows", "Messages", count_text(manifest.rows), note=until),
            Tile(
                "lake-bytes",
                "Size",
                size_text(manifest.bytes),
                note=_message_size(manifest.bytes, manifest.rows),
            ),
            Tile(
                "lake-files",
                "Files",
                count_text(len(manifest.files)),
                note=f"{count_text(len(manifest.retired))} retired",
            ),
            Tile(
                "lake-days",
                "Days",
                count_text(len(view.days)),
                note=f"{count_text(manifest.buckets)} buckets",
            ),
            Tile(
                "lake-version", "Version", count_text(manifest.version), note=f"{_age(view.changed_at)} ago"
            ),
            behind_tile(log),
            Tile(
                "lake-gaps",
                "Missing from the log",
                count_text(sum(gap.last - gap.first + 1 for gap in manifest.gaps)),
                note="offsets, recorded as missing",
                level=Level.ELEVATED if manifest.gaps else Level.GOOD,
            ),
        ]
    )
    st.html(_lake_html(view))


def _lake_html(view: LakeView) -> str:
    """Folder and topic filters of the lake; the tooltip has the whole path."""
    path, filters = view.path.parent, ", ".join(view.manifest.filters) or "#"
    return (
        f'<div class="nothing" title="{escape(str(path), quote=True)}">'
        f"Folder {escape(path.name)}, topics {escape(filters)}</div>"
    )


def behind_tile(log: LogState | None) -> Tile:
    """Tile with the lag of the lake behind the log."""
    if log is None:
        return Tile("lake-behind", "Behind the log", ABSENT, note="not reported by the server")
    if not log.is_there:
        return Tile("lake-behind", "Behind the log", ABSENT, note="the server has no log")
    if log.lag is None:
        return Tile(
            "lake-behind", "Behind the log", ABSENT, note="another server's log", level=Level.ELEVATED
        )
    return Tile("lake-behind", "Behind the log", count_text(log.lag), note="messages, at most")


def show_days(view: LakeView) -> None:
    """Draw the size of each day."""
    show_heading("Days", f"the last {SHOWN_DAYS}" if len(view.days) > SHOWN_DAYS else "UTC")
    rows = _share_rows(view.days[:SHOWN_DAYS])
    show_table("lake-days", ("day", "files", "size", "messages"), rows, numbers=3, empty="No messages yet.")


def show_buckets(view: LakeView) -> None:
    """Draw the distribution of messages over buckets."""
    show_heading("Buckets", "messages by the bucket of their topic")
    bars = {f"bucket {share.name}": {"messages": float(share.rows)} for share in view.buckets}
    height = min(50 + BAR_PX * len(bars), TALLEST_PX)
    show_bars("lake-buckets", bars, {"messages": ACCENT}, unit="messages", height=height)


def _share_rows(shares: Sequence[PartitionSize]) -> list[Cells]:
    """Days or buckets as table rows."""
    return [
        [each.name, count_text(each.files), size_text(each.bytes), count_text(each.rows)] for each in shares
    ]


def show_commits(view: LakeView) -> None:
    """Draw the last commits."""
    show_heading("Last commits")
    rows: list[Cells] = [
        [
            count_text(each.version),
            f"{second_text(each.at)} UTC",
            each.by,
            f"+{count_text(each.files_added)} −{count_text(each.files_removed)}",  # noqa: RUF001
            size_text(each.bytes),
            count_text(each.rows),
        ]
        for each in view.commits
    ]
    columns = ("version", "time", "by", "files", "size", "messages")
    show_table("lake-commits", columns, rows, numbers=3, empty="No commits.")


def show_holds(log: LogState) -> None:
    """Draw the retention holds on the log."""
    show_heading("Holds", "retention keeps what follows a hold until it lapses")
    columns = ("hold", "owner", "lapses in", "messages behind")
    rows = [hold_cells(hold) for hold in log.holds]
    show_table("lake-holds", columns, rows, numbers=2, empty="No holds.")


def hold_cells(hold: HoldRow) -> Cells:
    """Hold as a table row."""
    is_soon = hold.lapses_in_s < SOON_S
    return [
        f"{hold.name} (this lake)" if hold.is_of_lake else hold.name,
        hold.owner or "anonymous",
        Cell(duration_text(max(hold.lapses_in_s, 0.0)), Level.ELEVATED if is_soon else Level.GOOD),
        count_text(hold.lag),
    ]


def show_insight(insight: Insight) -> None:
    """Draw the newest window of one insights table."""
    shown = len(insight.rows)
    of_all = f", {shown} of {count_text(insight.rows_in_all)}" if insight.rows_in_all > shown else ""
    show_heading(insight.table, f"window of {second_text(insight.window_start)} UTC{of_all}")
    columns = list(insight.rows[0])
    rows = [[cell_text(name, row[name]) for name in columns] for row in insight.rows]
    texts = sum(isinstance(value, str) for value in insight.rows[0].values())
    titles = [name.replace("_", " ") for name in columns]
    show_table(f"insight-{insight.table}", titles, rows, numbers=len(columns) - texts, empty="")


def cell_text(name: str, value: Any) -> str:
    """Value of an insights table as text."""
    if value is None:
        return ABSENT
    if isinstance(value, str):
        return value
    if name == "share":
        return percent_text(value)
    if name.startswith("bytes"):
        return size_text(value)
    return f"{value:,.2f}" if isinstance(value, float) else count_text(value)


def show_audit_report(audit: Audit | None, lake: Path, address: str) -> None:
    """Draw the last audit report, or the command that stores one."""
    show_heading(
        "Last audit", "" if audit is None else f"{_age(audit.at)} ago, of version {count_text(audit.version)}"
    )
    if audit is None:
        st.caption(
            "This lake has no audit report. An audit reads every file; this command stores its report here:"
        )
        st.code(audit_command(lake, address), language="bash")
        return
    with st.container(key="lake-audit"):
        if audit.is_clean:
            st.success(
                f"All {count_text(audit.rows)} messages are present, once and in order.",
                icon=":material/verified:",
            )
        else:
            st.error(f"The audit found: {findings_text(audit.findings)}.", icon=":material/gpp_bad:")


def findings_text(findings: Mapping[str, int]) -> str:
    """Findings of an audit in words."""
    found = [f"{count_text(number)} {name.replace('_', ' ')}" for name, number in findings.items() if number]
    return ", ".join(found) or "see the report"


def _message_size(total: int, rows: int) -> str:
    return f"{size_text(total / rows)} a message" if rows else ""


def _age(time: datetime) -> str:
    return age_text(time, datetime.now(UTC))
