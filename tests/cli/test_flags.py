"""Groups of flags: what typer sees of them, and what the command gets."""

from inspect import signature
from typing import Annotated

import typer
from typer.testing import CliRunner

from penstock.cli.flags import Group, spread


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
