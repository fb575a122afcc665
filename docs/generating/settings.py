"""The page about settings: their words are the docstrings of the settings themselves."""

import inspect
from enum import Enum
from typing import Any

import msgspec
from msgspec.structs import fields

from docs.generating.tables import table
from penstock.config import PRESETS, Settings
from penstock.config.describe import field_docs, write_size
from penstock.config.keys import Key, describe, keys_of, known_keys
from penstock.config.load import CAPTURED_ON_DISK
from penstock.config.reload import reload_of
from penstock.config.sources import variable_of
from penstock.core.settings import TopicRule

INTRODUCTION = """\
# Configuration

Generated from the settings in the code by `make docs`; do not edit it here.

Values come from five places, later ones win: the default, a preset, a YAML file (`--config`, or the file
that `PENSTOCK_CONFIG` names), the environment, flags. `penstock config show --origin` prints every value
with the place it came from; [how to configure a server](../how-to/configure.md) has examples.

The column "reload" says when a new value counts after [SIGHUP](../how-to/reload.md): at once, for what begins
after it, or only with a restart.

An unknown key or variable, a value of the wrong type and a value out of range are errors that name the
key. Sizes in bytes may be written with K, M, G or T (powers of 1024): `50M`. Durations may be written with
a unit (ms, s, m, h, d, w): `500ms`, `30s`, `1h30m`, `7d`; a plain number is in seconds or milliseconds, as
the end of the key says.
"""
TOP_LEVEL = "Keys without a section."
TITLES = ("key", "value", "default", "reload", "meaning")
CONDITIONAL_DEFAULTS = {
    "log.capture": f"empty; with `data_dir` {', '.join(f'`{filter}`' for filter in CAPTURED_ON_DISK)}",
}
"""What a default is where it depends on another setting."""


def configuration_page() -> str:
    """The whole page, as text."""
    parts = [INTRODUCTION, "## Top level\n", f"{TOP_LEVEL}\n", _table(Settings, "")]
    for field in _sections():
        parts += [f"## {field.name}\n", f"{_summary(field.type)}\n", _table(field.type, f"{field.name}.")]
    parts += ["## Rules in topics\n", f"{_summary(TopicRule)}\n", _table(TopicRule, "topics[].")]
    parts += ["## Presets\n", _presets()]
    return "\n".join(parts)


def _sections() -> list[msgspec.structs.FieldInfo]:
    names = list(dict.fromkeys(name.split(".")[0] for name in known_keys() if "." in name))
    by_name = {field.name: field for field in fields(Settings)}
    return [by_name[name] for name in names]


def _table(struct: type[msgspec.Struct], prefix: str) -> str:
    documented = field_docs(struct)
    defaults = {field.name: field for field in fields(struct)}
    keys = [key for key in keys_of(struct, prefix) if key.name.count(".") == prefix.count(".")]
    order = list(known_keys())
    keys.sort(key=lambda key: order.index(key.name) if key.name in order else 0)
    rows = []
    for key in keys:
        name = key.name.rpartition(".")[2]
        name_cell = f"`{key.name}`" + ("" if "[" in key.name else f"<br>`{variable_of(key.name)}`")
        meaning = documented.get(name, "")
        default = _default(key, defaults[name])
        rows.append([name_cell, describe(key), default, str(reload_of(key.name)), meaning])
    return table(TITLES, rows)


def _default(key: Key, field: msgspec.structs.FieldInfo) -> str:
    if key.name in CONDITIONAL_DEFAULTS:
        return CONDITIONAL_DEFAULTS[key.name]
    if field.required:
        return "required"
    value: Any = field.default
    if value is None:
        return "unset"
    if isinstance(value, Enum):
        value = value.value
    if value in ((), ""):
        return "empty"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{write_size(value) if key.is_size else value}`"


def _presets() -> str:
    """What each preset sets."""
    return table(("preset", "sets"), ((f"`{name}`", _given(values)) for name, values in PRESETS.items()))


def _given(values: Any) -> str:
    return ", ".join(f"`{key}: {_written(value)}`" for key, value in values.items())


def _written(value: object) -> str:
    """A value as one would write it in the file."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _summary(struct: type[msgspec.Struct]) -> str:
    return inspect.getdoc(struct) or ""
