"""Parts of a page that are drawn anew each second, while the rest of the page stays as it is."""

from collections.abc import Callable

import streamlit as st

from penstock.dashboard.poll import View, current

REFRESH_S = 1.0


def live(draw: Callable[[View], None]) -> Callable[[], None]:
    """Make a function that draws figures a part that refreshes itself.

    It is not called before there are figures: until then the panel above the page says what is the matter.
    """

    @st.fragment(run_every=REFRESH_S)
    def part() -> None:
        view = current().view()
        if len(view.history):
            draw(view)

    return part
