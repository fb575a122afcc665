"""The flag `--preset`: the one set of values that the others are put on top of."""

from typing import Annotated

import typer

from penstock.config import PRESETS
from penstock.errors import InvalidConfig

Presets = Annotated[
    list[str] | None,
    typer.Option("--preset", metavar="NAME", help=f"Values to start from: one of {', '.join(PRESETS)}."),
]


def only_preset(given: list[str] | None) -> str | None:
    """The preset that was asked for, if any.

    Raises:
        InvalidConfig: there are several.
    """
    if given is not None and len(given) > 1:
        raise InvalidConfig(
            f"--preset: only one is taken, and these are {', '.join(given)}; "
            "put the values of the others into the settings file"
        )
    return given[0] if given else None
