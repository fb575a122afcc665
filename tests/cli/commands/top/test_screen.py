"""What of a view is drawn on terminals of different sizes."""

from io import StringIO

import pytest
from msgspec.structs import replace
from rich.console import Console

from penstock.cli.commands.top.screen import draw
from penstock.cli.commands.top.view import Loss, Order, View
from tests.cli.commands.top.test_view import seen

SLOW = {"client_id": "tortoise\x1b[31m", "is_slow": True, "waiting_messages": 9, "waiting_bytes": 2048}


def drawn(view: View, width: int, height: int, note: str | None = None) -> list[str]:
    console = Console(file=StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    lines = console.render_lines(draw(view, console, Order.PUBLISHED, note, False), pad=False)
    return ["".join(segment.text for segment in line).rstrip() for line in lines]


@pytest.mark.parametrize(("width", "height"), [(200, 60), (100, 24), (80, 24), (60, 20), (40, 30)])
def test_no_line_is_wider_than_the_terminal(width: int, height: int) -> None:
    lines = drawn(replace(seen(), slow=[SLOW]), width, height)
    assert max(map(len, lines)) <= width


def test_topics_give_way_where_the_terminal_is_low() -> None:
    many = replace(seen(), busiest=[replace(seen().busiest[0], topic=f"t/{number}") for number in range(50)])
    lines = drawn(many, 120, 24)
    assert len(lines) == 24
    assert 5 <= sum(line.startswith("t/") for line in lines) < 24
    assert lines[-1].startswith("q quit")


def test_the_column_of_the_order_is_marked() -> None:
    assert any("in/s▾" in line for line in drawn(seen(), 100, 30))


def test_what_a_name_holds_gives_no_orders_to_the_terminal() -> None:
    text = "\n".join(drawn(replace(seen(), slow=[SLOW]), 100, 30))
    assert r"tortoise\x1b[31m" in text
    assert "\x1b" not in text


def test_why_the_server_is_away_is_shown_above_the_last_figures() -> None:
    lines = drawn(seen(), 100, 30, note="The server is away")
    assert "The server is away" in lines
    assert any(line.startswith("a ") for line in lines)


def test_losses_have_their_reason_and_their_rate() -> None:
    view = replace(seen(), not_delivered=[Loss(reason="outbox-full", per_s=12.0, total=3_456)])
    [line] = [line for line in drawn(view, 120, 30) if "outbox-full" in line]
    assert line.split()[-2:] == ["12", "3,456"]
