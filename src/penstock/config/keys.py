"""Table of dotted keys, conversion of their values, and error texts.

Values arrive as YAML, as text from the environment, or typed from a flag. `convert` returns the key's own
type or raises with the key, the allowed range and the origin.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache, partial
from typing import Any, NamedTuple, get_args

import msgspec
from msgspec import Struct, inspect
from msgspec.structs import fields

from penstock.common.durations import parse_duration
from penstock.config.settings import Settings
from penstock.core.settings import CoreSettings
from penstock.errors import InvalidConfig

SIZE = re.compile(r"(\d+)\s*([kmgt]?)(?:i?b)?")
SIZE_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
LONGEST_NUMBER = 20
"""Maximum digits of a size; Python refuses to parse thousands of them."""
OriginOf = Callable[[int, str], str]
"""Returns the origin of a key of a rule, by the place of the rule in its list."""
UNSET_WORDS = ("off", "none", "null")
SWITCH_WORDS = {"on": True, "yes": True, "true": True, "off": False, "no": False, "false": False}


class Key(NamedTuple):
    """One setting: its dotted name and the type of its values."""

    name: str
    annotation: Any
    kind: inspect.Type

    @property
    def is_size(self) -> bool:
        """True if the value is a number of bytes, which may be written as `50M`."""
        last = self.name.rpartition(".")[2]
        return last == "bytes" or last.endswith("_bytes")

    @property
    def units_per_s(self) -> int | None:
        """For a duration, which may be written as `30s`: its units in a second; otherwise None."""
        if self.name.endswith("_ms"):
            return 1_000
        return 1 if self.name.endswith("_s") and not self.name.endswith("_per_s") else None

    @property
    def is_switch(self) -> bool:
        """True if the value is a boolean."""
        return any(isinstance(kind, inspect.BoolType) for kind in alternatives(self.kind))

    @property
    def may_be_unset(self) -> bool:
        """True if None is a valid value."""
        return any(isinstance(kind, inspect.NoneType) for kind in alternatives(self.kind))


@cache
def known_keys() -> dict[str, Key]:
    """Every setting by its dotted name: those without a section first, core's last."""
    core = CoreSettings.__struct_fields__
    keys = sorted(keys_of(Settings, ""), key=lambda key: ("." in key.name, key.name.split(".")[0] in core))
    return {key.name: key for key in keys}


def keys_of(struct: type[Struct], prefix: str) -> Iterator[Key]:
    """Keys of a struct and of its sections."""
    for field in fields(struct):
        kind = inspect.type_info(field.type)
        if isinstance(kind, inspect.StructType):
            yield from keys_of(kind.cls, f"{prefix}{field.name}.")
        else:
            yield Key(prefix + field.name, field.type, kind)


def alternatives(kind: inspect.Type) -> tuple[inspect.Type, ...]:
    """Types that a value may have; most keys have one."""
    return kind.types if isinstance(kind, inspect.UnionType) else (kind,)


# Values


def convert(
    key: Key, value: Any, origin: str, *, is_text: bool = True, origin_of: OriginOf | None = None
) -> Any:
    """Convert a value to the key's own type.

    Args:
        is_text: strings may stand for numbers and lists, as in environment and flags.
        origin_of: for lists of rules, finds the origin of each key of a rule; without it all have `origin`.
    """
    if isinstance(key.kind, inspect.VarTupleType):
        item = key.kind.item_type
        if isinstance(item, inspect.StructType):
            return _convert_rules(key, item.cls, value, origin, is_text, origin_of or (lambda *_: origin))
        return _convert_list(key, item, value, origin, is_text)
    plain = _plain(key, value)
    try:
        converted = msgspec.convert(plain, key.annotation, strict=not (is_text and isinstance(plain, str)))
    except (msgspec.ValidationError, UnicodeError) as error:
        raise wrong(key.name, describe(key), value, origin) from error
    if isinstance(converted, float) and not math.isfinite(converted):
        raise wrong(key.name, describe(key), value, origin)
    return converted


def _plain(key: Key, value: Any) -> Any:
    """Interpret words: sizes, durations, switches, and `off` for unset."""
    if key.may_be_unset and not key.is_switch and value is False:
        return None  # YAML reads a bare `off` as False
    if not isinstance(value, str):
        return value
    word = value.strip().lower()
    if key.is_switch and word in SWITCH_WORDS:
        return SWITCH_WORDS[word]
    if key.may_be_unset and word in UNSET_WORDS:
        return None
    if key.is_size and (size := SIZE.fullmatch(word)):
        return int(size[1]) * SIZE_UNITS[size[2]] if len(size[1]) < LONGEST_NUMBER else value
    if key.units_per_s is not None and (seconds := parse_duration(word)) is not None:
        return _in_units(key, seconds)
    return value


def _in_units(key: Key, seconds: float) -> float:
    """A duration in the units of its key, whole if it can be."""
    number = round(seconds * (key.units_per_s or 1), 9)
    return int(number) if number.is_integer() else number


def _convert_list(key: Key, item: inspect.Type, value: Any, origin: str, is_text: bool) -> Any:
    has_numbers = isinstance(item, inspect.IntType)
    items = _as_list(key, _as_numbers(value) if has_numbers else value, origin, is_text)
    try:
        return msgspec.convert(items, key.annotation, strict=not (is_text and has_numbers))
    except (msgspec.ValidationError, UnicodeError) as error:
        raise wrong(key.name, describe(key), value, origin) from error


def _convert_rules(
    key: Key, struct: type[Struct], value: Any, origin: str, is_text: bool, origin_of: OriginOf
) -> tuple[Struct, ...]:
    rules = _as_list(key, value, origin, is_text)
    return tuple(
        _rule(struct, f"{key.name}[{at}]", each, partial(origin_of, at)) for at, each in enumerate(rules)
    )


def _as_list(key: Key, value: Any, origin: str, is_text: bool) -> Any:
    if is_text and isinstance(value, str):
        return _split(key, value, origin)
    if not isinstance(value, list | tuple):
        raise wrong(key.name, describe(key), value, origin)
    return value


def _as_numbers(value: Any) -> Any:
    """A list of numbers may be written as one number, and an empty one as `off`."""
    if value is False or (isinstance(value, str) and value.strip().lower() in UNSET_WORDS):
        return []
    return [value] if isinstance(value, int) and not isinstance(value, bool) else value


def _split(key: Key, text: str, origin: str) -> Any:
    """List in one string: JSON if it looks like it, otherwise words between commas."""
    if not text.lstrip().startswith("["):
        return [word.strip() for word in text.split(",")]
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise wrong(key.name, "a JSON list", text, origin) from error


def _rule(struct: type[Struct], path: str, value: Any, origin_of: Callable[[str], str]) -> Struct:
    """One entry of a list of structs; its keys are checked like all others."""
    if not isinstance(value, Mapping):
        raise wrong(path, "a section with keys", value, origin_of(""))
    keys = {key.name: key for key in keys_of(struct, f"{path}.")}
    given: dict[str, Any] = {}
    for word, each in value.items():
        name = f"{path}.{word}"
        if name not in keys:
            raise unknown(name, keys, origin_of(str(word)))
        given[str(word)] = convert(keys[name], each, origin_of(str(word)), is_text=False)
    for field in fields(struct):
        if field.required and field.name not in given:
            raise InvalidConfig(f"{path}.{field.name}: is missing ({origin_of('')})")
    return struct(**given)


# Descriptions


def describe(key: Key) -> str:
    """Allowed values in words: `a whole number from 0 to 65535, or off`."""
    if isinstance(key.kind, inspect.LiteralType):
        return f"one of {', '.join(get_args(key.annotation))}"  # in the declared order
    kinds = [kind for kind in alternatives(key.kind) if not isinstance(kind, inspect.NoneType)]
    unset = ", or null" if key.is_switch else ", or off"
    unit = "" if key.units_per_s is None else ", or with a unit such as 30s"
    unit = ", or with a unit such as 50M" if key.is_size else unit
    return " or ".join(map(_describe_kind, kinds)) + unit + (unset if key.may_be_unset else "")


def _describe_kind(kind: inspect.Type) -> str:
    match kind:
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType():
            return f"a whole number{_describe_range(kind)}"
        case inspect.FloatType():
            return f"a number{_describe_range(kind)}"
        case inspect.StrType():
            return "text that is not empty" if kind.min_length else "text"
        case inspect.EnumType():
            return f"one of {', '.join(str(member.value) for member in kind.cls)}"
        case inspect.VarTupleType(item_type=inspect.StructType()):
            return "a list of rules"
        case inspect.VarTupleType(item_type=inspect.IntType()):
            return f"{_describe_kind(kind.item_type)}, a list of them, or off"
        case inspect.VarTupleType():
            return "a list of texts"
    raise TypeError(f"no description for a setting of type {kind}")


def _describe_range(kind: inspect.IntType | inspect.FloatType) -> str:
    if kind.ge is not None and kind.le is not None:
        return f" from {kind.ge} to {kind.le}"
    if kind.ge is not None:
        return f" of at least {kind.ge}"
    return f" above {kind.gt}" if kind.gt is not None else ""


def kind_of(value: object) -> str:
    """A value of the wrong type in words; a plain one as it is."""
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, Mapping):
        return "a section with keys"
    return "nothing" if value is None else repr(value)


def wrong(name: str, expected: str, value: object, origin: str) -> InvalidConfig:
    """Error about an invalid value."""
    return InvalidConfig(f"{name}: expected {expected}, got {kind_of(value)} ({origin})")


def unknown(name: str, known: Iterable[str], origin: str) -> InvalidConfig:
    """Error about an unknown key."""
    return InvalidConfig(f"{name}: unknown key{suggest(name, known)} ({origin})")


def suggest(name: str, known: Iterable[str]) -> str:
    """Nearest known name as the end of an error text; empty if none is near."""
    nearest = get_close_matches(name, list(known), n=1)
    if nearest == [name]:
        return "; write its parts as sections, one below the other"
    return f"; did you mean {nearest[0]}?" if nearest else ""
