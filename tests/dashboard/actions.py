"""User actions: clicks on buttons and table rows, and typing."""

import time

from selenium.webdriver import Keys
from selenium.webdriver.common.actions.action_builder import ActionBuilder
from selenium.webdriver.common.by import By

from penstock.dashboard.widgets import HEAD_PX, ROW_PX
from tests.dashboard.browser import Shown

INDENT_PX = 16
"""Where the text of the first column begins."""
REST_S = 0.5
"""Time without movement after which a page has settled."""
CANVAS = ".st-key-table-{} canvas[data-testid=data-grid-canvas]"


def press(shown: Shown, label: str) -> None:
    """Click on a button."""
    script = (
        "const found = [...document.querySelectorAll('.stMain button')]"
        ".find((one) => one.innerText.trim().endsWith(arguments[0]) && !one.disabled);"
        "if (found) { found.click(); } return Boolean(found)"
    )
    shown.wait_for(lambda: shown.run(script, label), f"no button {label}")


def write(shown: Shown, label: str, text: str, *, ends_with: str = Keys.ENTER) -> None:
    """Put a text into a field, in place of what was there; in a form, Enter sends all of it."""
    selector = f".stMain input[aria-label='{label}']"
    shown.wait_for(lambda: shown.texts(selector), f"no field {label}")
    field = shown.browser.find_element(By.CSS_SELECTOR, selector)
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys(text, ends_with)


def click_row(shown: Shown, table: str, row: int, row_px: int = ROW_PX) -> None:
    """Click on the text in the first column of a row of a large table, once the page has come to rest."""
    selector = CANVAS.format(table)
    before: list[int] = []
    while (place := _place_of(shown, selector, table)) != before:
        before = place
        time.sleep(REST_S)
    actions = ActionBuilder(shown.browser)
    actions.pointer_action.move_to_location(  # type: ignore[no-untyped-call]
        place[0] + INDENT_PX, place[1] + HEAD_PX + row_px * row + row_px // 2
    )
    actions.pointer_action.click()
    actions.perform()


def _place_of(shown: Shown, selector: str, table: str) -> list[int]:
    """Where a table is in the window, after it was scrolled into sight."""
    script = (
        "const found = document.querySelector(arguments[0]); if (!found) { return null }"
        "found.scrollIntoView({block: 'center'}); const box = found.getBoundingClientRect();"
        "return [Math.round(box.left), Math.round(box.top)]"
    )
    return list(shown.wait_for(lambda: shown.run(script, selector), f"no table {table}"))
