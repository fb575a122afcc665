"""Merge of all sources into the effective settings."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, inspect
from msgspec.structs import fields

from penstock.common.topics import check_filter, split_share
from penstock.config.keys import known_keys
from penstock.config.settings import Settings
from penstock.config.sources import (
    Given,
    Report,
    from_environment,
    from_file,
    from_flags,
    from_preset,
    named_file,
    raise_at_once,
)
from penstock.errors import InvalidConfig, InvalidFilter

CAPTURED_ON_DISK = ("#", "$penstock/#")
"""Default of `log.capture` with a data directory: everything."""


class Loaded(Struct, frozen=True):
    """Effective settings, and the origin of every dotted key."""

    settings: Settings
    origins: dict[str, str]

    def values(self) -> dict[str, Any]:
        """Every dotted key with its value."""
        return values_of(self.settings)


def load(
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
    preset: str | None = None,
    report: Report = raise_at_once,
) -> Loaded:
    """Load the settings; each source is checked on its own and overrides those before it.

    Args:
        file: a YAML file; if None, the one that `PENSTOCK_CONFIG` names, if any.
        environ: the process environment; only names that start with `PENSTOCK_` are read.
        flags: values by dotted key; None means the flag was not given.
        preset: one of `PRESETS`.
        report: called with each mistake; if it returns, the value keeps its default.

    Raises:
        InvalidConfig: a key is unknown, or a value has the wrong type or is out of range.
    """
    environ = environ or {}
    values: dict[str, Any] = {}
    origins = dict.fromkeys(known_keys(), "default")
    for source in (
        from_preset(preset),
        from_file(file or named_file(environ), report),
        from_environment(environ, report),
        from_flags(flags or {}, report),
    ):
        for given in _all_of(source, report):
            values[given.key] = given.value
            origins[given.key] = given.origin
    if values.get("data_dir") is not None and "log.capture" not in values:
        values["log.capture"] = CAPTURED_ON_DISK
        origins["log.capture"] = "default with data_dir"
    settings: Settings = assemble(Settings, "", values)
    _check_filters(settings, report)
    return Loaded(settings, origins)


def _all_of(source: Iterator[Given], report: Report) -> Iterator[Given]:
    """Values of a source; one that cannot be read at all is a mistake, too."""
    try:
        yield from source
    except InvalidConfig as mistake:
        report(mistake)


def _check_filters(settings: Settings, report: Report) -> None:
    """Refuse filters that can match nothing."""
    named = [(f"topics[{number}].filter", rule.filter) for number, rule in enumerate(settings.topics)]
    named += [(f"log.capture[{number}]", filter) for number, filter in enumerate(settings.log.capture)]
    for key, filter in named:
        try:
            check_filter(filter, settings.topic)
        except InvalidFilter as error:
            report(InvalidConfig(f"{key}: {error}"))
            continue
        if split_share(filter)[0] is not None:
            report(InvalidConfig(f"{key}: a shared filter matches no topic"))


def assemble(struct: type[Struct], prefix: str, values: Mapping[str, Any]) -> Any:
    """Build a struct and its sections; a key without a value keeps its default."""
    given: dict[str, Any] = {}
    for field in fields(struct):
        name = prefix + field.name
        kind = inspect.type_info(field.type)
        if isinstance(kind, inspect.StructType):
            given[field.name] = assemble(kind.cls, f"{name}.", values)
        elif name in values:
            given[field.name] = values[name]
    return struct(**given)


def values_of(settings: Settings) -> dict[str, Any]:
    """Every dotted key with its value."""
    return {name: _look_up(settings, name) for name in known_keys()}


def _look_up(settings: Any, name: str) -> Any:
    for part in name.split("."):
        settings = getattr(settings, part)
    return settings
