"""Where values come from: presets, a YAML file, the environment, flags."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from penstock.config.document import Document, read_document
from penstock.config.keys import convert, known_keys, suggest, unknown, wrong
from penstock.errors import InvalidConfig

PREFIX = "PENSTOCK_"
FILE_VARIABLE = "PENSTOCK_CONFIG"
OTHER_VARIABLES = (FILE_VARIABLE, "PENSTOCK_SOAK")
# What Kubernetes puts into every container of a namespace with a service called "penstock".
SERVICE_LINK = re.compile(r"PENSTOCK_(\w+_)?(SERVICE_HOST|SERVICE_PORT\w*|PORT_\d+_(TCP|UDP|SCTP)\w*)")

PRESETS: dict[str, dict[str, object]] = {
    "small": {"ring.messages": 5, "ring.total_bytes": "50M", "ring.partitions": 16},
    "medium": {"ring.messages": 10, "ring.total_bytes": "500M", "ring.partitions": 32},
    "large": {"ring.messages": 5, "ring.total_bytes": "2G", "ring.partitions": 64},
    "massive": {"ring.messages": 3, "ring.total_bytes": "4G", "ring.partitions": 128},
    "nexusd": {
        "ring.messages": 5,
        "ring.total_bytes": "50M",
        "ring.partitions": 16,
        "metrics.nexusd_names": True,
    },
    "resilient": {"ring.messages": 1000, "ring.total_bytes": "100M", "ring.partitions": 16},
    "hardened": {"web.rate_per_s": 1000, "web.burst": 500, "web.max_message_bytes": "64K"},
}


class Given(NamedTuple):
    """A value for a key, and where it came from."""

    key: str
    value: Any
    origin: str


def from_preset(preset: str | None) -> Iterator[Given]:
    """The values a preset stands for."""
    if preset is None:
        return
    if preset not in PRESETS:
        raise InvalidConfig(f"preset: expected one of {', '.join(PRESETS)}, got {preset!r}")
    origin = f"preset {preset}"
    for name, value in PRESETS[preset].items():
        yield Given(name, convert(known_keys()[name], value, origin), origin)


def from_flags(flags: Mapping[str, object]) -> Iterator[Given]:
    """The flags that were given, by dotted key."""
    for name, value in flags.items():
        if name not in known_keys():
            raise unknown(name, known_keys(), "flag")
        if value is not None:
            yield Given(name, convert(known_keys()[name], value, "flag"), "flag")


def named_file(environ: Mapping[str, str]) -> Path | None:
    """The configuration file that the environment names."""
    return Path(environ[FILE_VARIABLE]) if environ.get(FILE_VARIABLE) else None


def from_environment(environ: Mapping[str, str]) -> Iterator[Given]:
    """The values of `PENSTOCK_SECTION__KEY` variables; an empty one counts as not set."""
    keys = {variable_of(name): key for name, key in known_keys().items()}
    for variable, text in environ.items():
        if not variable.startswith(PREFIX) or variable in OTHER_VARIABLES:
            continue
        if variable in keys:
            if text:
                origin = f"environment {variable}"
                yield Given(keys[variable].name, convert(keys[variable], text, origin), origin)
        elif not _is_service_link(variable, text):
            raise InvalidConfig(f"{variable}: unknown environment variable{suggest(variable, keys)}")


def variable_of(name: str) -> str:
    """The environment variable of a dotted key."""
    return PREFIX + name.upper().replace(".", "__")


def _is_service_link(variable: str, text: str) -> bool:
    is_address = variable.endswith("_PORT") and "://" in text
    return is_address or SERVICE_LINK.fullmatch(variable) is not None


def from_file(file: Path | None) -> Iterator[Given]:
    """The values of a YAML file, each with the line it stands on."""
    if file is not None:
        document = read_document(file)
        yield from _from_section(document.content, (), document)


def _from_section(
    content: Mapping[object, object], path: tuple[str, ...], document: Document
) -> Iterator[Given]:
    for word, value in content.items():
        here = (*path, str(word))
        name = ".".join(here)
        origin = document.origin(here)
        is_one_word = "." not in str(word)
        if name in known_keys() and is_one_word:
            yield Given(name, convert(known_keys()[name], value, origin, is_text=False), origin)
        elif not any(known.startswith(f"{name}.") for known in known_keys()):
            raise unknown(name, _names_near(name), origin)
        elif isinstance(value, Mapping):
            yield from _from_section(value, here, document)
        elif value is not None:  # a section whose keys are all commented out
            raise wrong(name, "a section with keys", value, origin)


def _names_near(name: str) -> list[str]:
    """The names that stand as deep as this one, so that a section is suggested for a section."""
    depth = name.count(".") + 1
    names = {".".join(known.split(".")[:depth]) for known in known_keys()}
    return sorted(names | known_keys().keys())
