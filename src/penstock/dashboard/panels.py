"""What pages are made of: tiles with a number each, headings, small tables, and the panel of what is wrong.

Text from the server is escaped here, and nowhere else is HTML made of it.
"""

from collections.abc import Callable, Sequence
from datetime import UTC
from html import escape
from typing import NamedTuple

import streamlit as st

from penstock.dashboard.colours import LEVELS, Level
from penstock.dashboard.plain import plain
from penstock.dashboard.trouble import Trouble
from penstock.errors import PenstockError


class Tile(NamedTuple):
    """One number with its name; `key` names it for good (CSS class `st-key-tile-<key>`)."""

    key: str
    label: str
    value: str
    unit: str = ""
    note: str = ""
    level: Level = Level.GOOD
    hint: str = ""
    """What the number is, in a sentence that shows when a mouse is over its name."""


class Cell(NamedTuple):
    """One field of a small table: what is in it, and how much that wants to be looked at."""

    text: str
    level: Level = Level.GOOD
    share: float | None = None
    """From 0 to 1: a bar of that length stands there, and the text shows when a mouse is over it."""
    link: str = ""
    """The address of the page that the text leads to."""


def show_tiles(tiles: Sequence[Tile]) -> None:
    """A row of tiles, or several where the page is narrow."""
    st.html(f'<div class="tiles">{"".join(map(tile_html, tiles))}</div>')


def tile_html(tile: Tile) -> str:
    """A tile as HTML."""
    colour = "" if tile.level is Level.GOOD else f' style="color:{LEVELS[tile.level]}"'
    unit = f'<span class="unit">{escape(tile.unit)}</span>' if tile.unit else ""
    return (
        f'<div class="tile st-key-tile-{escape(tile.key)}">'
        f'<div class="label" title="{escape(tile.hint)}">{escape(tile.label)}</div>'
        f'<div class="value"{colour}><span class="number">{escape(tile.value)}</span>{unit}</div>'
        f'<div class="note" title="{escape(tile.note)}">{escape(tile.note) or "&nbsp;"}</div></div>'
    )


def show_heading(text: str, unit: str = "") -> None:
    """The name of what comes below, and its unit."""
    st.html(f'<div class="heading">{escape(text)}<small>{escape(unit)}</small></div>')


def show_table(
    key: str, columns: Sequence[str], rows: Sequence[Sequence[Cell | str]], *, numbers: int, empty: str
) -> None:
    """A small table (CSS class `st-key-table-<key>`), or a sentence if it has no rows.

    Args:
        numbers: so many columns, the last ones, are numbers.
    """
    with st.container(key=f"table-{key}"):
        if rows:
            st.html(table_html(columns, rows, numbers))
        else:
            show_nothing(empty)


def show_nothing(text: str) -> None:
    """A sentence where there is nothing else to show."""
    st.html(f'<div class="nothing">{escape(text)}</div>')


def table_html(columns: Sequence[str], rows: Sequence[Sequence[Cell | str]], numbers: int) -> str:
    """A table as HTML."""
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
    return f'<td class="{words}" title="{text}">{_inside_html(cell, text)}</td>'


def _inside_html(cell: Cell, text: str) -> str:
    if cell.link:
        return f'<a href="{escape(cell.link)}" target="_self">{text}</a>'
    return text if cell.share is None else _meter_html(cell.share, cell.level)


def _word(level: Level) -> str:
    return "" if level is Level.GOOD else str(level)


def _meter_html(share: float, level: Level) -> str:
    width = f"{min(max(share, 0.0), 1.0) * 100:.1f}%"
    return f'<span class="meter"><span style="width:{width};background:{LEVELS[level]}"></span></span>'


def show_trouble(trouble: Trouble, *, has_figures: bool) -> None:
    """Why there are no fresh figures, since when, and what to try."""
    since = f"{trouble.since.astimezone(UTC):%H:%M:%S} UTC"
    below = " The figures below are the last ones that came." if has_figures else ""
    advice = "\n".join(f"- {line}" for line in trouble.advice)
    with st.container(key=f"trouble-{trouble.kind}"):
        st.error(
            f"**{trouble.title}.** Since {since}: `{trouble.tried}`: {plain(trouble.text)}.\n\n{advice}\n\n"
            f"The dashboard asks again every second.{below}",
            icon=":material/cloud_off:",
        )


def attempt(work: Callable[[], None]) -> None:
    """Do what may be refused; that becomes a line on the page."""
    try:
        work()
    except PenstockError as error:
        st.warning(plain(str(error)), icon=":material/error:")
