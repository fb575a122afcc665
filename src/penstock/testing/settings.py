"""The settings of a server in a test: given as keywords in the shape of the settings file.

The environment and files are not looked at, so that a test means the same on every machine.
"""

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from penstock.config import load
from penstock.config.keys import known_keys
from penstock.errors import InvalidConfig

if TYPE_CHECKING:
    from penstock.config import Settings

DEFAULTS: dict[str, Any] = {
    "mqtt.port": 0,
    "http.port": 0,
    "sidecar.port": 0,
    "shutdown_timeout_s": 1.0,  # a test has no time for a client that does not go
    "log.capture": ["#"],  # so that a test can see everything that was published
}
"""Differences from a server that is started by hand."""

Flat = Mapping[str, object]
"""Values by dotted key."""


def flatten(given: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Sections as dotted keys: `mqtt={"port": 0}` is `mqtt.port`."""
    for word, value in given.items():
        name = f"{prefix}{word}"
        if isinstance(value, Mapping) and name not in known_keys():
            yield from flatten(value, f"{name}.")
        else:
            yield name, _plain(value)


def _plain(value: object) -> object:
    """A value as a settings file would have it."""
    if value is None:
        return "off"
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def settings_of(flat: Flat, preset: str | None) -> "Settings":
    """The settings that keywords mean.

    Raises:
        InvalidConfig: a key is unknown, or a value is not what it should be.
    """
    try:
        return load(flags={**DEFAULTS, **flat}, preset=preset).settings
    except InvalidConfig as error:
        raise InvalidConfig(str(error).removesuffix(" (flag)")) from None  # it was none
