"""Groups of flags: what typer sees of them, and what the command gets."""

import re
from inspect import signature
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from penstock.cli.flags import Group, parse_seconds, spread


class Place(Group, frozen=True, kw_only=True):
    host: Annotated[str, typer.Option("--host", help="Where.")] = "here"
    port: Annotated[int, typer.Option("--port", "-p")] = 1


class FarPlace(Place, frozen=True, kw_only=True):
    port: Annotated[int, typer.Option("--port", "-p")] = 2
    hops: Annotated[int, typer.Option("--hops")] = 0


def make_app() -> tuple[typer.Typer, list[tuple[str, Place, bool]]]:
    """An app with one command, and what that command was called with."""
    calls: list[tuple[str, Place, bool]] = []
    app = typer.Typer()

    @app.command()
    @spread
    def look(name: str, *, place: FarPlace, loud: bool = False) -> None:
        """Look there."""
        calls.append((name, place, loud))

    return app, calls


def test_a_group_stands_for_its_flags_and_the_command_gets_it_as_one() -> None:
    app, calls = make_app()
    result = CliRunner().invoke(app, ["x", "--host", "there", "-p", "9", "--loud"])
    assert result.exit_code == 0, result.output
    assert calls == [("x", FarPlace(host="there", port=9, hops=0), True)]


def test_flags_that_are_not_given_have_the_defaults_of_the_group() -> None:
    app, calls = make_app()
    CliRunner().invoke(app, ["x"])
    assert calls == [("x", FarPlace(host="here", port=2, hops=0), False)]


def test_a_flag_that_is_said_anew_keeps_its_place_in_the_help() -> None:
    @spread
    def look(*, place: FarPlace) -> None:
        """Look there."""

    assert list(signature(look).parameters) == ["host", "port", "hops"]


def test_help_has_the_commands_words_and_those_of_the_flags() -> None:
    text = CliRunner().invoke(make_app()[0], ["--help"]).output
    assert "Look there." in text
    assert "Where." in text


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("30s", 30.0), ("2", 2.0), ("1.5", 1.5), (7, 7.0)]
)
def test_a_duration_is_a_number_of_seconds_or_has_a_unit(text: str | float, seconds: float) -> None:
    assert parse_seconds(0, 100, False, text) == seconds


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("soon", "'soon' is not a duration; write seconds, or 500ms, 30s, 5m, 7d"),
        ("500ms", "500ms is out of range: give at least 1 s"),
        ("7d", "7d is out of range: give at most 100 s"),
        ("1500ms", "1500ms is not a whole number of seconds"),
        ("nan", "nan is out of range: give at most 100 s"),
    ],
)
def test_a_duration_that_cannot_be_is_refused(text: str, says: str) -> None:
    with pytest.raises(typer.BadParameter, match=re.escape(says)):
        parse_seconds(1, 100, True, text)
