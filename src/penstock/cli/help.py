"""Help pages: what stands for the value of a flag, and nothing behind a switch.

typer prints the Python type of each parameter. Here a value has a word of the command's own, such as PORT, a
switch has none, and the range of a number is left to the error that names it.
"""

from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

WORDS = {"path": "FILE", "str": "TEXT", "int": "NUMBER", "float": "NUMBER"}
"""Word for a value of a type, if the flag has none of its own."""


def tidy(command: Any) -> None:
    """Tidy the help of a command and of all its sub-commands."""
    for each in _all(command):
        for parameter in each.params:
            _tidy_parameter(parameter)
        _tidy_late_parameters(each)


def placeholder(parameter: Any) -> str:
    """The word for the value of a flag or an argument."""
    if parameter.metavar:
        return str(parameter.metavar)
    kind = parameter.type_descriptor.annotation
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "|".join(str(each.value) for each in kind)
    if isinstance(kind, type) and issubclass(kind, Path):
        return WORDS["path"]
    return WORDS.get(getattr(kind, "__name__", ""), "TEXT")


def _all(command: Any) -> Iterator[Any]:
    yield command
    for each in getattr(command, "commands", {}).values():
        yield from _all(each)


def _tidy_parameter(parameter: Any) -> None:
    if not hasattr(parameter, "type_descriptor"):
        return  # an older typer, which has words of its own
    is_option = parameter.param_type_name == "option"
    word = placeholder(parameter) if is_option and not parameter.is_flag else None
    parameter.display_type_rich = lambda ctx: word
    parameter._get_number_range_help_str = lambda: None
    if not is_option:
        usage = _usage_of(parameter)
        parameter.get_usage_pieces = lambda ctx: [usage]


def _usage_of(argument: Any) -> str:
    """An argument in the usage line: `TOPIC`, `[MESSAGE]`, `FILTER...`."""
    word = argument.metavar or argument.name.upper()
    word = f"{word}..." if argument.nargs != 1 else word
    return word if argument.required else f"[{word}]"


def _tidy_late_parameters(command: Any) -> None:
    """Tidy `--help` and the flags of shell completion, which typer adds later."""
    get_all = command.get_params

    def tidied(ctx: Any) -> Any:
        parameters = get_all(ctx)
        for each in parameters:
            _tidy_parameter(each)
        return parameters

    command.get_params = tidied
