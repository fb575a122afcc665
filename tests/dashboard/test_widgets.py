"""Tiles and tables as HTML, escaping of markdown and HTML, and times as text."""

from datetime import UTC, datetime, timedelta, timezone

from penstock.dashboard.style import LEVELS, Level
from penstock.dashboard.widgets import (
    Cell,
    Tile,
    age_text,
    escape_markdown,
    second_text,
    table_html,
    tile_html,
)

EVIL = '<img src=x onerror="alert(1)">'


def test_a_time_of_another_zone_is_shown_in_utc() -> None:
    moment = datetime(2026, 11, 17, 1, 2, 3, 45_678, tzinfo=timezone(timedelta(hours=2)))
    assert second_text(moment) == "2026-11-16 23:02:03"


def test_an_age_is_never_negative() -> None:
    moment = datetime(2026, 11, 16, 12, tzinfo=UTC)
    assert age_text(moment, moment + timedelta(seconds=185)) == "3 min 05 s"
    assert age_text(moment, moment - timedelta(seconds=5)) == "0 s"


def test_text_of_the_server_is_escaped() -> None:
    tile = tile_html(Tile("key", EVIL, EVIL, EVIL, EVIL))
    table = table_html([EVIL], [[EVIL], [Cell(EVIL, Level.CRITICAL, link=EVIL)]], 0)
    assert "<img" not in tile + table
    assert tile.count("&lt;img") == 5
    assert table.count("&lt;img") == 6


def test_a_tile_has_a_css_class_and_a_colour_by_level() -> None:
    calm, alarmed = (
        tile_html(Tile("drops", "Drops", "1", level=level)) for level in (Level.GOOD, Level.CRITICAL)
    )
    assert "st-key-tile-drops" in calm and "style" not in calm
    assert LEVELS[Level.CRITICAL] in alarmed


def test_a_share_is_a_bar_of_that_length() -> None:
    half, over = (table_html(["a"], [[Cell("x", Level.GOOD, share)]], 0) for share in (0.5, 7))
    assert "width:50.0%" in half
    assert "width:100.0%" in over


def test_the_last_columns_are_numbers() -> None:
    html = table_html(["a", "b", "c"], [["1", "2", "3"]], 2)
    assert html.count('<th class="number">') == 2
    assert html.count('<td class="number"') == 2


def test_all_markdown_characters_are_escaped() -> None:
    said = escape_markdown("**bold** [x](http://y) `code` <b> $x$ :red[a]\n# head")
    assert said == (r"\*\*bold\*\* \[x\]\(http\://y\) \`code\` \<b\> \$x\$ \:red\[a\] \# head")
