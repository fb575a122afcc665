"""`penstock config`: check and show the settings, of a file or of a running server."""

import os
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from msgspec import Struct

from penstock.cli.commands.serve import Presets, only_preset
from penstock.cli.connect import HttpServer, run_http
from penstock.cli.flags import spread
from penstock.cli.output import Output, OutputOption, print_facts
from penstock.config import load

if TYPE_CHECKING:
    from penstock.client import HttpClient

app = typer.Typer(help="Check the configuration, or show what is in effect.", no_args_is_help=True)


class Format(StrEnum):
    """Output format of settings."""

    YAML = "yaml"
    JSON = "json"


ConfigFile = Annotated[Path | None, typer.Option("--config", help="YAML file; default: PENSTOCK_CONFIG.")]


DEFAULT = "default"
"""Prefix of the origin of a default value."""


class Shown(Struct, frozen=True):
    """Settings to print: in sections, by dotted key, and the origin of each."""

    sections: Any
    values: Mapping[str, Any]
    origins: Mapping[str, str]


@app.command()
def check(
    config: ConfigFile = None,
    preset: Presets = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Check the settings of file and environment."""
    loaded = load(config, os.environ, preset=only_preset(preset))
    if output is Output.JSON:
        changed = [name for name, origin in loaded.origins.items() if not origin.startswith(DEFAULT)]
        print_facts({"status": "ok", "set": sorted(changed)}, output)
    else:
        print("ok")


@app.command()
@spread
def show(
    config: ConfigFile = None,
    preset: Presets = None,
    origin: Annotated[bool, typer.Option("--origin", help="Also show the origin of each value.")] = False,
    from_server: Annotated[
        bool, typer.Option("--server", help="Show the settings of a running server.")
    ] = False,
    *,
    server: HttpServer,
    output: Annotated[
        Format, typer.Option("--output", "-o", metavar="FORMAT", help="Output format: yaml or json.")
    ] = Format.YAML,
) -> None:
    """Print the settings in effect: of file and environment, or with --server of a running server."""
    if from_server:
        if config is not None or preset:
            raise typer.BadParameter("--server asks a server; leave out --config and --preset")
        run_http(server, lambda client: _show_of(client, origin, output))
        return
    if server != HttpServer():
        raise typer.BadParameter("--host, --port and what else is about a server need --server")
    loaded = load(config, os.environ, preset=only_preset(preset))
    _print(Shown(loaded.settings, loaded.values(), loaded.origins), origin, output)


def _show_of(client: "HttpClient", with_origin: bool, output: Format) -> None:
    """Print the settings of a server, and on standard error those that need a restart."""
    response = client.config()
    sections, origins = response["settings"], response["origins"]
    values = {name: _value_at(sections, name.split(".")) for name in origins}
    _print(Shown(sections, values, origins), with_origin, output)
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
    lines: list[str] = []
    section = ""
    for name, value in shown.values.items():
        parent, _, key = name.rpartition(".")
        if parent != section:
            lines.append(f"{parent}:")
            section = parent
        # JSON is YAML too, so that strings come out quoted and lists on one line.
        line = f"{'  ' * bool(parent)}{key}: {msgspec.json.encode(value).decode()}"
        lines.append(f"{line}  # {shown.origins[name]}" if with_origin else line)
    return "\n".join(lines)
