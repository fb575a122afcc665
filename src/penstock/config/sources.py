"""Sources of values: presets, a YAML file, the environment, flags."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.config.keys import Key, OriginOf, convert, kind_of, known_keys, suggest, unknown, wrong
from penstock.errors import InvalidConfig

if TYPE_CHECKING:
    import yaml


PREFIX = "PENSTOCK_"
FILE_VARIABLE = "PENSTOCK_CONFIG"
OTHER_VARIABLES = (FILE_VARIABLE, "PENSTOCK_BUILD", "PENSTOCK_SOAK")
# Kubernetes sets these in every container of a namespace with a service called "penstock".
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


class Document(NamedTuple):
    """Parsed YAML file, with the line of each value."""

    file: Path
    content: Mapping[object, object]
    root: "yaml.Node | None"

    def origin(self, path: Iterable[str | int]) -> str:
        """File, and line of the deepest part of a path that exists in it; a number is a place in a list."""
        node, line = self.root, 1
        for part in path:
            found = _child(node, part)
            if found is None:
                break
            line, node = yaml_line(found[0]), found[1]
        return f"{self.file}:{line}"

    def origin_in_list(self, path: tuple[str, ...], at: int, word: str) -> str:
        """File and line of a key in an item of the list at a path."""
        return self.origin((*path, at, word))


def _child(node: "yaml.Node | None", part: str | int) -> tuple[Any, Any] | None:
    """Node that has the line of a part, and the node of its value."""
    if isinstance(part, str):
        return next((pair for pair in yaml_pairs(node) if pair[0].value == part), None)
    items = node.value if node is not None and isinstance(node.value, list) else []
    return (items[part], items[part]) if part < len(items) else None


def read_document(file: Path) -> Document:
    """Read a YAML file; it must contain a mapping or nothing."""
    import yaml  # noqa: PLC0415 - 30 ms, only with a file

    try:
        loader = yaml.SafeLoader(file.read_text(encoding="utf-8"))
        root = loader.get_single_node()
        _refuse_duplicates(file, root, set())  # before constructing, which adds merged keys to the nodes
        content = None if root is None else loader.construct_document(root)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{file}: cannot be read: {getattr(error, 'strerror', error)}") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise InvalidConfig(f"{file}:{line}: not valid YAML: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise InvalidConfig(f"{file}: not valid YAML: {' '.join(str(error).split())}") from error
    except RecursionError:
        raise InvalidConfig(f"{file}: not valid YAML: nested too deeply") from None
    except (ValueError, LookupError, AttributeError, TypeError) as error:  # a tag on a value of another type
        raise InvalidConfig(f"{file}: not valid YAML: {error}") from error
    if content is not None and not isinstance(content, dict):
        line = yaml_line(root) if root else 1
        found = "text" if isinstance(content, str) else kind_of(content)
        raise InvalidConfig(f"{file}:{line}: expected keys with values, got {found}")
    return Document(file, content or {}, root)


def _refuse_duplicates(file: Path, node: "yaml.Node | None", seen: set[int]) -> None:
    """Refuse duplicate keys; YAML libraries silently let the last one win."""
    if node is None or not isinstance(node.value, list) or id(node) in seen:
        return
    seen.add(id(node))  # an alias may refer to an enclosing node
    lines: dict[str, int] = {}
    for key, _ in yaml_pairs(node):
        name, line = str(key.value), yaml_line(key)
        if name in lines:
            raise InvalidConfig(f"{file}:{line}: {name!r} is given twice, first on line {lines[name]}")
        lines[name] = line
    for child in node.value:
        _refuse_duplicates(file, child[1] if isinstance(child, tuple) else child, seen)


def yaml_pairs(node: "yaml.Node | None") -> list[tuple[Any, Any]]:
    """Keys and values of a mapping; none if the node is something else."""
    if node is None or not isinstance(node.value, list):
        return []
    return [child for child in node.value if isinstance(child, tuple)]


def yaml_line(node: "yaml.Node") -> int:
    """Line on which a node starts, counted from one."""
    return int(node.start_mark.line) + 1


class Given(NamedTuple):
    """Value for a key, and its origin."""

    key: str
    value: Any
    origin: str


Report = Callable[[InvalidConfig], None]
"""Takes a mistake; the rest of the source is read if it returns."""


def raise_at_once(mistake: InvalidConfig) -> None:
    """Report of a start: the first mistake ends it."""
    raise mistake


def _convert(
    key: Key,
    value: object,
    origin: str,
    report: Report,
    *,
    is_text: bool = True,
    origin_of: OriginOf | None = None,
) -> Iterator[Given]:
    """A value with its origin; nothing after a mistake."""
    try:
        yield Given(key.name, convert(key, value, origin, is_text=is_text, origin_of=origin_of), origin)
    except InvalidConfig as mistake:
        report(mistake)


def from_preset(preset: str | None) -> Iterator[Given]:
    """Values of a preset."""
    if preset is None:
        return
    if preset not in PRESETS:
        raise InvalidConfig(f"preset: expected one of {', '.join(PRESETS)}, got {preset!r}")
    origin = f"preset {preset}"
    for name, value in PRESETS[preset].items():
        yield Given(name, convert(known_keys()[name], value, origin), origin)


def from_flags(flags: Mapping[str, object], report: Report = raise_at_once) -> Iterator[Given]:
    """Given flags, by dotted key."""
    for name, value in flags.items():
        if name not in known_keys():
            report(unknown(name, known_keys(), "flag"))
        elif value is not None:
            yield from _convert(known_keys()[name], value, "flag", report)


def named_file(environ: Mapping[str, str]) -> Path | None:
    """Configuration file that the environment names."""
    return Path(environ[FILE_VARIABLE]) if environ.get(FILE_VARIABLE) else None


def from_environment(environ: Mapping[str, str], report: Report = raise_at_once) -> Iterator[Given]:
    """Values of `PENSTOCK_SECTION__KEY` variables; an empty one counts as not set."""
    keys = {variable_of(name): key for name, key in known_keys().items()}
    for variable, text in environ.items():
        if not variable.startswith(PREFIX) or variable in OTHER_VARIABLES:
            continue
        if variable in keys:
            if text:
                yield from _convert(keys[variable], text, f"environment {variable}", report)
        elif not _is_service_link(variable, text):
            report(InvalidConfig(f"{variable}: unknown environment variable{suggest(variable, keys)}"))


def variable_of(name: str) -> str:
    """Environment variable of a dotted key."""
    return PREFIX + name.upper().replace(".", "__")


def _is_service_link(variable: str, text: str) -> bool:
    is_address = variable.endswith("_PORT") and "://" in text
    return is_address or SERVICE_LINK.fullmatch(variable) is not None


def from_file(file: Path | None, report: Report = raise_at_once) -> Iterator[Given]:
    """Values of a YAML file, each with its line."""
    if file is not None:
        document = read_document(file)
        yield from _from_section(document.content, (), document, report)


def _from_section(
    content: Mapping[object, object], path: tuple[str, ...], document: Document, report: Report
) -> Iterator[Given]:
    for word, value in content.items():
        here = (*path, str(word))
        name = ".".join(here)
        origin = document.origin(here)
        is_one_word = "." not in str(word)
        if name in known_keys() and is_one_word:
            yield from _convert(
                known_keys()[name],
                value,
                origin,
                report,
                is_text=False,
                origin_of=partial(document.origin_in_list, here),
            )
        elif not any(known.startswith(f"{name}.") for known in known_keys()):
            report(unknown(name, _names_near(name), origin))
        elif isinstance(value, Mapping):
            yield from _from_section(value, here, document, report)
        elif value is not None:  # a section whose keys are all commented out
            report(wrong(name, "a section with keys", value, origin))


def _names_near(name: str) -> list[str]:
    """Names of the same depth, so that a section is suggested for a section."""
    depth = name.count(".") + 1
    names = {".".join(known.split(".")[:depth]) for known in known_keys()}
    return sorted(names | known_keys().keys())
