"""`penstock config`: look at the settings without starting a server."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from penstock.cli.presets import Presets, only_preset
from penstock.config import Loaded, load

app = typer.Typer(help="Check the configuration, or show what is in effect.", no_args_is_help=True)


class Output(StrEnum):
    """How settings are written."""

    YAML = "yaml"
    JSON = "json"


ConfigFile = Annotated[Path | None, typer.Option("--config", help="YAML file; default: PENSTOCK_CONFIG.")]


@app.command()
def check(config: ConfigFile = None) -> None:
    """Say ok, or what is wrong with file and environment."""
    load(config, os.environ)
    print("ok")


@app.command()
def show(
    config: ConfigFile = None,
    preset: Presets = None,
    origin: Annotated[bool, typer.Option("--origin", help="Also say where each value came from.")] = False,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to write it.")] = Output.YAML,
) -> None:
    """Print the settings in effect."""
    loaded = load(config, os.environ, preset=only_preset(preset))
    lines = as_json(loaded, origin) if output is Output.JSON else as_yaml(loaded, origin)
    print(lines)


def as_json(loaded: Loaded, with_origin: bool) -> str:
    """The settings as sections, or with origins as one object per dotted key."""
    content: Any = loaded.settings
    if with_origin:
        content = {
            name: {"value": value, "origin": loaded.origins[name]} for name, value in loaded.values().items()
        }
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode()


def as_yaml(loaded: Loaded, with_origin: bool) -> str:
    """The settings as a file that could be loaded again; origins are comments."""
    lines: list[str] = []
    section = ""
    for name, value in loaded.values().items():
        parent, _, key = name.rpartition(".")
        if parent != section:
            lines.append(f"{parent}:")
            section = parent
        # JSON is YAML too, so that strings come out quoted and lists on one line.
        line = f"{'  ' * bool(parent)}{key}: {msgspec.json.encode(value).decode()}"
        lines.append(f"{line}  # {loaded.origins[name]}" if with_origin else line)
    return "\n".join(lines)
