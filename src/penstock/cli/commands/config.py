"""`penstock config`: check, show, compare and explain settings, of files or of a running server.

`penstock reload` makes a running server read its settings again.
"""

import os
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from msgspec import Struct

from penstock.cli.commands.serve import Presets, SetFlags, SettingsFile, only_preset, parse_set_flags
from penstock.cli.connect import HttpServer, run_http
from penstock.cli.flags import Group, spread
from penstock.cli.output import Output, OutputOption, print_facts, print_pairs
from penstock.config import Loaded, load
from penstock.config.keys import known_keys, suggest
from penstock.config.sources import Report, raise_at_once
from penstock.errors import InvalidConfig

if TYPE_CHECKING:
    from penstock.client import HttpClient

app = typer.Typer(
    help="Check the configuration, show what is in effect, or explain it.", no_args_is_help=True
)


class Format(StrEnum):
    """Output format of settings."""

    YAML = "yaml"
    JSON = "json"


FormatOption = Annotated[
    Format, typer.Option("--output", "-o", metavar="FORMAT", help="Output format: yaml or json.")
]
FromServer = Annotated[bool, typer.Option("--server", help="Read the settings of a running server.")]

DEFAULT = "default"
"""Prefix of the origin of a default value."""


class SourceFlags(Group, frozen=True, kw_only=True):
    """Flags of the sources of settings."""

    config: SettingsFile = None
    set_flags: SetFlags = None
    preset: Presets = None

    def load(self, report: Report = raise_at_once) -> Loaded:
        """Load the settings of file, environment and these flags."""
        flags = dict(parse_set_flags(self.set_flags))
        return load(self.config, os.environ, flags, only_preset(self.preset), report)


class Shown(Struct, frozen=True):
    """Settings to print: in sections, by dotted key, and the origin of each."""

    sections: Any
    values: Mapping[str, Any]
    origins: Mapping[str, str]
    needs_restart: tuple[str, ...] = ()
    """Keys whose new value waits for the next start."""


@app.command()
@spread
def check(*, sources: SourceFlags, output: OutputOption = Output.TEXT) -> None:
    """Check settings, and the files that they name: all that `serve` would refuse.

    Every mistake is a line of its own; ends with 1 if there is one.
    """
    from penstock.app.preflight import find_mistakes  # noqa: PLC0415 - it imports the server's parts

    mistakes: list[str] = []
    loaded = sources.load(lambda mistake: mistakes.append(str(mistake)))
    mistakes += find_mistakes(loaded.settings)
    if output is Output.JSON:
        changed = [name for name, origin in loaded.origins.items() if not origin.startswith(DEFAULT)]
        facts: dict[str, Any] = {"status": "wrong" if mistakes else "ok", "set": sorted(changed)}
        print_facts(facts | ({"mistakes": mistakes} if mistakes else {}), output)
    elif not mistakes:
        print("ok")
    for mistake in mistakes if output is Output.TEXT else ():
        typer.echo(f"error: {' '.join(mistake.split())}", err=True)
    if mistakes:
        raise typer.Exit(1)


@app.command()
@spread
def show(
    *,
    sources: SourceFlags,
    origin: Annotated[bool, typer.Option("--origin", help="Also show the origin of each value.")] = False,
    from_server: FromServer = False,
    server: HttpServer,
    output: FormatOption = Format.YAML,
) -> None:
    """Print the settings in effect: of file and environment, or with --server of a running server."""
    _look_at(sources, server, from_server, lambda shown: _print(shown, origin, output))


@app.command()
@spread
def diff(
    *,
    sources: SourceFlags,
    from_server: FromServer = False,
    server: HttpServer,
    output: FormatOption = Format.YAML,
) -> None:
    """Print the settings that differ from their defaults, with default and origin."""
    _look_at(sources, server, from_server, lambda shown: _print_changes(shown, output))


@app.command()
def init(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="File to write; without one it is printed."),
    ] = None,
) -> None:
    """Write a settings file with every setting, its meaning and its default, as comments.

    An existing file is not replaced.
    """
    from penstock.config.describe import annotated_example  # noqa: PLC0415 - it reads the sources

    text = annotated_example()
    if file is None:
        print(text, end="")
        return
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError:
        raise InvalidConfig(f"{file}: is there already; name another file, or remove it") from None
    except OSError as error:
        raise InvalidConfig(f"{file}: cannot be written: {error.strerror}") from None
    print(f"wrote {file}; `penstock serve --config {file}` uses it")


@app.command()
def schema() -> None:
    """Print the JSON schema of a settings file, for editors and other programs."""
    from penstock.config.describe import json_schema  # noqa: PLC0415 - it reads the sources

    print(msgspec.json.format(msgspec.json.encode(json_schema()), indent=2).decode())


def _complete_key(incomplete: str) -> list[str]:
    """Shell completion: settings whose name begins with the given text."""
    return [name for name in known_keys() if name.startswith(incomplete)]


@app.command()
@spread
def explain(
    key: Annotated[
        str,
        typer.Argument(
            metavar="KEY",
            help="A setting such as outbox.messages, or a section.",
            autocompletion=_complete_key,
        ),
    ],
    *,
    sources: SourceFlags,
    output: OutputOption = Output.TEXT,
) -> None:
    """Explain a setting: its meaning, values, default, variable, and its value now."""
    from penstock.config.describe import explain as explanation_of  # noqa: PLC0415 - it reads the sources
    from penstock.config.describe import setting_docs, written  # noqa: PLC0415

    if key in known_keys():
        loaded, found = sources.load(), explanation_of(key)
        facts = msgspec.to_builtins(found)
        value = loaded.values()[key]
        facts |= {"value": msgspec.to_builtins(value), "origin": loaded.origins[key]}
        if output is Output.TEXT:
            facts["value"] = written(known_keys()[key], value)
        print_facts(facts, output)
        return
    inside = {name: text for name, text in setting_docs().items() if name.startswith(f"{key}.")}
    if not inside:
        raise InvalidConfig(f"{key}: unknown key{suggest(key, known_keys())}")
    if output is Output.JSON:
        print_facts(inside, output)
    else:
        print_pairs(inside.items())


@spread
def reload(*, server: HttpServer, output: OutputOption = Output.TEXT) -> None:
    """Make a running server read its settings, users, rights and certificates again.

    All of it is applied, or after a mistake nothing, which ends with 1. Some settings wait for the next
    start.
    """

    def work(client: "HttpClient") -> None:
        result = client.reload()
        if output is Output.JSON:
            print_facts(result, output)
            return
        applied, waiting = result.get("applied") or (), result.get("needs_restart") or ()
        for change in applied:
            print(f"applied {change}")
        for name in waiting:
            print(f"{name} waits for the next start")
        if not applied and not waiting:
            print("reloaded; no setting has changed")

    run_http(server, work)


def _look_at(sources: SourceFlags, server: HttpServer, from_server: bool, print_them: Any) -> None:
    """Read the settings of a server or of the sources, and print them."""
    if from_server:
        if sources != SourceFlags():
            raise typer.BadParameter("--server reads a server; leave out --config, --set and --preset")
        run_http(server, lambda client: _print_of_server(client, print_them))
        return
    if server != HttpServer():
        raise typer.BadParameter("--host, --port and other flags of a server need --server")
    loaded = sources.load()
    print_them(Shown(loaded.settings, loaded.values(), loaded.origins))


def _print_of_server(client: "HttpClient", print_them: Any) -> None:
    """Print the settings of a server, and on standard error those that need a restart."""
    response = client.config()
    sections, origins = response["settings"], response["origins"]
    values = {name: _value_at(sections, name.split(".")) for name in origins}
    print_them(Shown(sections, values, origins))
    for name in response.get("needs_restart", ()):
        typer.echo(f"{name} has changed in the file, and waits for the next start", err=True)


def _value_at(sections: Mapping[str, Any], path: list[str]) -> Any:
    """The value of a dotted key."""
    found: Any = sections
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _print(shown: Shown, with_origin: bool, output: Format) -> None:
    print(_as_json(shown, with_origin) if output is Format.JSON else _as_yaml(shown, with_origin))


def _print_changes(shown: Shown, output: Format) -> None:
    """Print what differs from the defaults; as YAML it is a file that can be loaded."""
    defaults, values = _as_json_values(load().values()), _as_json_values(shown.values)
    changed = {name: value for name, value in values.items() if value != defaults.get(name)}
    if output is Format.JSON:
        content = {
            name: {"value": value, "default": defaults.get(name), "origin": shown.origins[name]}
            for name, value in changed.items()
        }
        print(msgspec.json.format(msgspec.json.encode(content), indent=2).decode())
        return
    comments = {
        name: f"default {msgspec.json.encode(defaults.get(name)).decode()}, {shown.origins[name]}"
        for name in changed
    }
    print("\n".join(_yaml_lines(changed, comments)) if changed else "# Every setting has its default.")


def _as_json_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values as JSON has them, and so those of a server too: tuples are lists."""
    decoded: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(dict(values)))
    return decoded


def _as_json(shown: Shown, with_origin: bool) -> str:
    """The settings as sections, or with origins as one object per dotted key."""
    content: Any = shown.sections
    if with_origin:
        content = {
            name: {"value": value, "origin": shown.origins[name]} for name, value in shown.values.items()
        }
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode()


def _as_yaml(shown: Shown, with_origin: bool) -> str:
    """The settings as a YAML file that can be loaded; origins are comments."""
    return "\n".join(_yaml_lines(shown.values, shown.origins if with_origin else {}))


def _yaml_lines(values: Mapping[str, Any], comments: Mapping[str, str]) -> list[str]:
    lines: list[str] = []
    section = ""
    for name, value in values.items():
        parent, _, key = name.rpartition(".")
        if parent != section:
            lines.append(f"{parent}:")
            section = parent
        # JSON is YAML too, so that strings come out quoted and lists on one line.
        line = f"{'  ' * bool(parent)}{key}: {msgspec.json.encode(value).decode()}"
        lines.append(f"{line}  # {comments[name]}" if name in comments else line)
    return lines
