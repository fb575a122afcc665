"""Tiles and tables as HTML: what comes from the server is text and nothing else."""

from penstock.dashboard.colours import LEVELS, Level
from penstock.dashboard.panels import Cell, Tile, table_html, tile_html

EVIL = '<img src=x onerror="alert(1)">'


def test_what_comes_from_a_server_is_escaped() -> None:
    tile = tile_html(Tile("key", EVIL, EVIL, EVIL, EVIL))
    table = table_html([EVIL], [[EVIL], [Cell(EVIL, Level.CRITICAL, link=EVIL)]], 0)
    assert "<img" not in tile + table
    assert tile.count("&lt;img") == 5
    assert table.count("&lt;img") == 6


def test_a_tile_has_a_class_of_its_own_and_a_colour_if_it_should_be_looked_at() -> None:
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
