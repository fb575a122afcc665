"""Building blocks of pages: tiles, headings, tables, live fragments and error panels.

HTML is built from text of the server here and nowhere else, and always escaped.
"""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import NamedTuple

import streamlit as st

from penstock.common.text import duration_text
from penstock.dashboard.poller import PollFailure, View, current_poller
from penstock.dashboard.style import LEVELS, Level
from penstock.errors import PenstockError

_MARKDOWN = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~$:&])")
REFRESH_S = 1.0


def live(draw: Callable[[View], None]) -> Callable[[], None]:
    """Decorator: redraw this part of a page every second.

    The function is not called before the first metrics arrive; until then the header says why.
    """

    @st.fragment(run_every=REFRESH_S)
    def part() -> None:
        view = current_poller().view()
        if len(view.history):
            draw(view)

    return part


def show_errors(work: Callable[[], None]) -> None:
    """Run a function and draw a refused request as a warning."""
    try:
        work()
    except PenstockError as error:
        st.warning(escape_markdown(str(error)), icon=":material/error:")


def show_failure(failure: PollFailure, *, has_metrics: bool) -> None:
    """Draw why there is no fresh data, since when, and what to try."""
    since = f"{failure.since.astimezone(UTC):%H:%M:%S} UTC"
    below = " The values below are the last ones received." if has_metrics else ""
    advice = "\n".join(f"- {line}" for line in failure.advice)
    with st.container(key=f"failure-{failure.kind}"):
        st.error(
            f"**{failure.title}.** Since {since}: `{failure.tried}`: {escape_markdown(failure.text)}."
            f"\n\n{advice}\n\n"
            f"The dashboard retries every second.{below}",
            icon=":material/cloud_off:",
        )


class Tile(NamedTuple):
    """One number with its label; `key` is part of the CSS class `st-key-tile-<key>`."""

    key: str
    label: str
    value: str
    unit: str = ""
    note: str = ""
    level: Level = Level.GOOD
    hint: str = ""
    """Explanation in one sentence, shown as a tooltip of the label."""


class Cell(NamedTuple):
    """One field of a small table, with its level."""

    text: str
    level: Level = Level.GOOD
    share: float | None = None
    """From 0 to 1: drawn as a bar of that length, with the text as its tooltip."""
    link: str = ""
    """Address of the page that the text links to."""


def show_tiles(tiles: Sequence[Tile]) -> None:
    """Draw tiles in one row, or in several on a narrow page."""
    st.html(f'<div class="tiles">{"".join(map(tile_html, tiles))}</div>')


def tile_html(tile: Tile) -> str:
    """Tile as HTML."""
    colour = "" if tile.level is Level.GOOD else f' style="color:{LEVELS[tile.level]}"'
    unit = f'<span class="unit">{escape(tile.unit)}</span>' if tile.unit else ""
    return (
        f'<div class="tile st-key-tile-{escape(tile.key)}">'
        f'<div class="label" title="{escape(tile.hint)}">{escape(tile.label)}</div>'
        f'<div class="value"{colour}><span class="number">{escape(tile.value)}</span>{unit}</div>'
        f'<div class="note" title="{escape(tile.note)}">{escape(tile.note) or "&nbsp;"}</div></div>'
    )


def show_heading(text: str, unit: str = "") -> None:
    """Draw the title of a part and its unit."""
    st.html(f'<div class="heading">{escape(text)}<small>{escape(unit)}</small></div>')


def show_table(
    key: str, columns: Sequence[str], rows: Sequence[Sequence[Cell | str]], *, numbers: int, empty: str
) -> None:
    """Draw a small table (CSS class `st-key-table-<key>`), or a sentence if it has no rows.

    Args:
        numbers: how many of the last columns are numbers.
    """
    with st.container(key=f"table-{key}"):
        if rows:
            st.html(table_html(columns, rows, numbers))
        else:
            show_nothing(empty)


def show_nothing(text: str) -> None:
    """Draw a sentence in place of an empty part."""
    st.html(f'<div class="nothing">{escape(text)}</div>')


def table_html(columns: Sequence[str], rows: Sequence[Sequence[Cell | str]], numbers: int) -> str:
    """Table as HTML."""
    first = len(columns) - numbers
    heads = "".join(
        f'<th class="{"number" if i >= first else ""}">{escape(name)}</th>' for i, name in enumerate(columns)
    )
    lines = "".join(
        f"<tr>{''.join(_cell_html(cell, i >= first) for i, cell in enumerate(row))}</tr>" for row in rows
    )
    return f'<table class="plain"><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table>'


def _cell_html(cell: Cell | str, is_number: bool) -> str:
    cell = Cell(cell) if isinstance(cell, str) else cell
    text = escape(cell.text)
    words = " ".join(word for word in ("number" if is_number else "", _word(cell.level)) if word)
    return f'<td class="{words}" title="{text}">{_content_html(cell, text)}</td>'


def _content_html(cell: Cell, text: str) -> str:
    if cell.link:
        return f'<a href="{escape(cell.link)}" target="_blank" rel="noopener">{text}</a>'
    return text if cell.share is None else _meter_html(cell.share, cell.level)


def _word(level: Level) -> str:
    return "" if level is Level.GOOD else str(level)


def _meter_html(share: float, level: Level) -> str:
    width = f"{min(max(share, 0.0), 1.0) * 100:.1f}%"
    return f'<span class="meter"><span style="width:{width};background:{LEVELS[level]}"></span></span>'


def escape_markdown(text: str) -> str:
    """Text in one line with all markdown characters escaped."""
    return _MARKDOWN.sub(r"\\\1", " ".join(text.split()))


def second_text(time: datetime) -> str:
    """UTC date and time: `2026-11-16 21:28:16`."""
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def age_text(time: datetime, now: datetime) -> str:
    """Age of a moment: `3 min 05 s`; never negative, as clocks may differ."""
    return duration_text(max((now - time).total_seconds(), 0.0))
