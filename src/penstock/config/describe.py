"""Descriptions of the settings: their docstrings, an annotated example file, and a JSON schema.

The string below each field of a settings struct is its documentation. The reference page, `penstock config
init`, `explain` and `schema` all read it here.
"""

import ast
import inspect
from collections.abc import Iterator
from enum import Enum
from functools import cache
from textwrap import dedent, wrap
from typing import Any

import msgspec
from msgspec.inspect import (
    BoolType,
    EnumType,
    FloatType,
    IntType,
    LiteralType,
    NoneType,
    StrType,
    StructType,
    Type,
    VarTupleType,
    type_info,
)
from msgspec.structs import fields

from penstock.common.durations import UNITS_S, write_duration
from penstock.config.keys import SIZE_UNITS, Key, alternatives, describe, keys_of, known_keys
from penstock.config.load import CAPTURED_ON_DISK, values_of
from penstock.config.reload import reload_of
from penstock.config.settings import Settings
from penstock.config.sources import variable_of

WIDTH = 100
"""Width of the comments in the example."""
UNSET = "off"
CONDITIONAL_DEFAULTS = {"log.capture": f"{', '.join(CAPTURED_ON_DISK)} with data_dir"}
"""Defaults that depend on another setting."""
HEAD = """\
# Settings of a Penstock server, with their defaults. Remove the # before a line to change its value.
#
#   penstock serve --config FILE      starts a server with them
#   penstock config check --config FILE   finds mistakes, all at once
#   penstock config explain KEY       explains one of them
#
# Sizes take K, M, G or T: 50M. Durations take ms, s, m, h, d or w: 30s, 7d. `off` unsets a value.
"""
TOPIC_EXAMPLE = """\
# topics:
#   - filter: sensors/#
#     ttl_ms: 1h
#     policy: drop-oldest
"""


class Explanation(msgspec.Struct, frozen=True):
    """Everything known about one setting."""

    key: str
    meaning: str
    values: str
    default: Any
    variable: str
    reload: str
    """Point from which a changed value applies."""


def explain(name: str) -> Explanation:
    """The explanation of a setting."""
    key = known_keys()[name]
    return Explanation(
        key=name,
        meaning=setting_docs()[name],
        values=describe(key),
        default=default_text(key),
        variable=variable_of(name),
        reload=str(reload_of(name)),
    )


@cache
def setting_docs() -> dict[str, str]:
    """The documentation of every setting, by its dotted name."""
    return dict(_docs_of(Settings, ""))


def _docs_of(struct: type[msgspec.Struct], prefix: str) -> Iterator[tuple[str, str]]:
    docs = field_docs(struct)
    for field in fields(struct):
        kind = type_info(field.type)
        if isinstance(kind, StructType):
            yield from _docs_of(kind.cls, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, docs.get(field.name, "")


def field_docs(struct: type[msgspec.Struct]) -> dict[str, str]:
    """The string that follows each field, by field; fields of a base struct included."""
    docs: dict[str, str] = {}
    for owner in reversed(struct.__mro__):
        if issubclass(owner, msgspec.Struct) and owner is not msgspec.Struct:
            docs.update(_attribute_docs(owner))
    return docs


def _attribute_docs(struct: type[msgspec.Struct]) -> Iterator[tuple[str, str]]:
    definition = ast.parse(dedent(inspect.getsource(struct))).body[0]
    assert isinstance(definition, ast.ClassDef)
    for field, text in zip(definition.body, definition.body[1:], strict=False):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                yield name, " ".join(words.split())


def section_docs() -> dict[str, str]:
    """The summary of every section, by its name."""
    by_name = {field.name: field.type for field in fields(Settings)}
    sections = dict.fromkeys(name.partition(".")[0] for name in known_keys() if "." in name)
    return {name: inspect.getdoc(by_name[name]) or "" for name in sections}


# Values as people write them


def default_text(key: Key) -> str:
    """The default of a setting, as it is written in a file."""
    return written(key, values_of(Settings())[key.name])


def written(key: Key, value: Any) -> str:
    """A value as it is written in a file: `50M`, `7d`, `off`, `[a, b]`."""
    if value is None:
        return "null" if key.is_switch else UNSET
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Enum):
        return str(value.value)
    if key.is_size:
        return write_size(value)
    if key.units_per_s is not None:
        return write_duration(value / key.units_per_s)
    return msgspec.json.encode(value).decode() if isinstance(value, str | tuple) else str(value)


def write_size(size: int) -> str:
    """The shortest exact way to write a size: `50M`."""
    for unit, factor in sorted(SIZE_UNITS.items(), key=lambda each: -each[1]):
        if unit and size and size % factor == 0:
            return f"{size // factor}{unit.upper()}"
    return str(size)


# Example


def annotated_example() -> str:
    """A settings file that has every setting as a comment, with its documentation and its default."""
    summaries, section = section_docs(), ""
    parts = [HEAD]
    for name, key in known_keys().items():
        parent, _, word = name.rpartition(".")
        if parent != section:
            parts.append(f"# {summaries[parent]}\n{parent}:")
            section = parent
        parts.append("\n".join(_entry(key, word, "  " if parent else "")) + "\n")
    return "\n".join(parts)


def _entry(key: Key, word: str, indent: str) -> Iterator[str]:
    notes = f"{setting_docs()[key.name]} Values: {describe(key)}."
    if key.name in CONDITIONAL_DEFAULTS:
        notes += f" Default: {CONDITIONAL_DEFAULTS[key.name]}."
    yield from wrap(notes, WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")
    if key.name == "topics":
        yield TOPIC_EXAMPLE.rstrip("\n")
    else:
        yield f"{indent}# {word}: {default_text(key)}"


# Schema


def json_schema() -> dict[str, Any]:
    """JSON schema of a settings file, for editors and other programs."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Settings of a Penstock server",
        **_struct_schema(Settings, ""),
    }


def _struct_schema(struct: type[msgspec.Struct], prefix: str) -> dict[str, Any]:
    docs = field_docs(struct)
    keys = {key.name: key for key in keys_of(struct, prefix)}
    properties: dict[str, Any] = {}
    for field in fields(struct):
        name, kind = prefix + field.name, type_info(field.type)
        if isinstance(kind, StructType):
            # A section whose keys are all comments is null.
            section = _struct_schema(kind.cls, f"{name}.") | {"type": ["object", "null"]}
            properties[field.name] = {"description": inspect.getdoc(kind.cls) or "", **section}
        else:
            properties[field.name] = {
                "description": docs.get(field.name, ""),
                **({"default": msgspec.to_builtins(field.default)} if not field.required else {}),
                **_key_schema(keys[name]),
            }
    required = [field.name for field in fields(struct) if field.required]
    schema: dict[str, Any] = {"type": "object", "additionalProperties": False, "properties": properties}
    return schema | ({"required": required} if required else {})


def _key_schema(key: Key) -> dict[str, Any]:
    choices = [_type_schema(kind) for kind in alternatives(key.kind) if not isinstance(kind, NoneType)]
    if key.is_size:
        choices.append({"type": "string", "pattern": r"^\d+\s*[kKmMgGtT]?([iI]?[bB])?$"})
    if key.units_per_s is not None:
        units = "|".join(UNITS_S)
        choices.append({"type": "string", "pattern": rf"^((\d+(\.\d*)?|\.\d+)\s*({units})\s*)+$"})
    if isinstance(key.kind, VarTupleType) and isinstance(key.kind.item_type, IntType):
        choices += [_type_schema(key.kind.item_type), {"enum": [UNSET, False]}]
    if key.may_be_unset:
        choices.append({"enum": [None] if key.is_switch else [None, UNSET, False]})
    return choices[0] if len(choices) == 1 else {"anyOf": choices}


def _type_schema(kind: Type) -> dict[str, Any]:
    match kind:
        case BoolType():
            return {"type": "boolean"}
        case IntType():
            return {"type": "integer", **_range_schema(kind)}
        case FloatType():
            return {"type": "number", **_range_schema(kind)}
        case StrType():
            return {"type": "string", **({"minLength": kind.min_length} if kind.min_length else {})}
        case LiteralType():
            return {"enum": list(kind.values)}
        case EnumType():
            return {"enum": [member.value for member in kind.cls]}
        case VarTupleType(item_type=StructType(cls=struct)):
            return {"type": "array", "items": _struct_schema(struct, "topics[].")}
        case VarTupleType():
            return {"type": "array", "items": _type_schema(kind.item_type)}
    raise TypeError(f"no schema for a setting of type {kind}")


def _range_schema(kind: IntType | FloatType) -> dict[str, float]:
    limits = {"minimum": kind.ge, "maximum": kind.le, "exclusiveMinimum": kind.gt}
    return {name: limit for name, limit in limits.items() if limit is not None}
