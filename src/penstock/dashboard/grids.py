"""Large tables that scroll and in which a click on a row chooses it.

They are drawn on a canvas: whatever is in them is text, and is never taken for markdown or HTML.
"""

from collections.abc import Callable, Mapping
from typing import Any

import streamlit as st

Columns = dict[str, list[Any]]
"""A table, by the titles of its columns."""

ROW_PX, HEAD_PX = 35, 38
"""How high rows and the head of a table are."""


def show_grid(
    name: str,
    key: str,
    columns: Columns,
    *,
    visible_rows: int,
    config: Mapping[str, Any],
    marked: tuple[int, str] | None = None,
    on_choice: Callable[[int], None],
) -> None:
    """Draw a table (CSS class `st-key-table-<name>`).

    Args:
        key: another one for other rows, so that what was chosen from these is forgotten.
        marked: the row and column that are marked as chosen.
        on_choice: is told the row that somebody has clicked on, before the page is drawn again.
    """

    def choose() -> None:
        cells = st.session_state[key]["selection"]["cells"]
        if cells:
            on_choice(int(cells[0][0]))

    rows = len(next(iter(columns.values())))
    with st.container(key=f"table-{name}"):
        st.dataframe(
            columns,
            key=key,
            hide_index=True,
            height=min(rows, visible_rows) * ROW_PX + HEAD_PX,
            on_select=choose,
            selection_mode="single-cell",
            selection_default=None if marked is None else {"selection": {"cells": [marked]}},
            column_config=dict(config),
        )


def number_columns(*names: str) -> dict[str, Any]:
    """Columns of whole numbers: thousands apart, to the right."""
    return {name: st.column_config.NumberColumn(format="localized") for name in names}
