"""The commands with their arguments and flags, as `--help` has them."""

import re
from collections.abc import Iterator
from enum import Enum
from typing import Any

import typer.main

from docs.generating.tables import code, sentence, table
from penstock.cli import COMMANDS, build
from penstock.cli.commands.serve import NEXUSD_PANEL, SETTINGS
from penstock.cli.help import placeholder

FLAG = re.compile(r"(?<![\w`-])--[a-z][a-z-]+(?!`)")


def commands() -> dict[str, Any]:
    """Every command that does something, by its name without `penstock`."""
    return dict(_below(typer.main.get_command(build(COMMANDS)), ""))


def _below(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _below(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command


def commands_table() -> str:
    """What each command does, in a line."""
    rows = ((code(f"penstock {name}"), _meaning(summary_of(each))) for name, each in commands().items())
    return table(("command", "what it does"), rows)


def summary_of(command: Any) -> str:
    """The first line of a command's help."""
    return (command.help or "").strip().partition("\n")[0]


def command_block(name: str) -> str:
    """How one command is called: usage, arguments, flags."""
    command = commands()[name]
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    flags = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
    usage = " ".join(["penstock", name, *(["[FLAGS]"] if flags else []), *map(_argument_of, arguments)])
    parts = [f"```text\n{usage}\n```\n"]
    if arguments:
        described = [(code(_argument_of(each)), _meaning(each.help)) for each in arguments]
        parts.append(table(("argument", "meaning"), described))
    if flags and name == "serve":  # has no defaults of its own
        own = [each for each in flags if each.rich_help_panel != NEXUSD_PANEL]
        parts.append(_settings_table(own))
        parts.append(f"{NEXUSD_PANEL}:\n")
        parts.append(_settings_table([each for each in flags if each not in own]))
    elif flags:
        rows = [(_flag(each), _default(each), _meaning(each.help)) for each in flags]
        parts.append(table(("flag", "default", "meaning"), rows))
    return "\n".join(parts)


def _settings_table(flags: list[Any]) -> str:
    rows = [(_flag(each), _setting(each), _meaning(each.help)) for each in flags]
    return table(("flag", "sets", "meaning"), rows)


def _meaning(help: str | None) -> str:
    """A help text with the flags in it as code."""
    return FLAG.sub(lambda found: code(found[0]), sentence(help or ""))


def _argument_of(argument: Any) -> str:
    name = (argument.metavar or argument.name).upper()
    name = f"{name}..." if argument.nargs == -1 else name
    return name if argument.required else f"[{name}]"


def _flag(option: Any) -> str:
    value = "" if option.is_flag else f" {placeholder(option)}"
    names = [*option.opts, *option.secondary_opts]
    return ", ".join(code(f"{name}{value}") for name in names)


def _setting(option: Any) -> str:
    """The setting that a flag of the server sets."""
    return code(SETTINGS[option.name]) if option.name in SETTINGS else ""


def _default(option: Any) -> str:
    if isinstance(option.show_default, str):
        return code(option.show_default)
    value = option.default
    value = value.value if isinstance(value, Enum) else value
    if value is None or value is False or value in ("", []) or callable(value) or not option.show_default:
        return ""
    if isinstance(value, list | tuple):
        return ", ".join(code(str(each)) for each in value)
    return "on" if value is True else code(str(value))
