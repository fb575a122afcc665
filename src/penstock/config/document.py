"""A YAML file as values with the lines they stand on; nothing here knows a key."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.errors import InvalidConfig

if TYPE_CHECKING:
    import yaml


class Document(NamedTuple):
    """What a file says, and where it says so."""

    file: Path
    content: Mapping[object, object]
    root: "yaml.Node | None"

    def origin(self, path: Iterable[str]) -> str:
        """The file, and the line of the deepest part of a path that is written out in it."""
        node, line = self.root, 1
        for part in path:
            found = next((pair for pair in pairs_of(node) if pair[0].value == part), None)
            if found is None:
                break
            line, node = line_of(found[0]), found[1]
        return f"{self.file}:{line}"


def read_document(file: Path) -> Document:
    """Read a file that must hold keys with values, or nothing at all."""
    import yaml  # noqa: PLC0415 - 30 ms that a start without a file need not pay

    try:
        loader = yaml.SafeLoader(file.read_text(encoding="utf-8"))
        root = loader.get_single_node()
        refuse_duplicates(file, root, set())  # before constructing, which writes merged keys into the nodes
        content = None if root is None else loader.construct_document(root)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{file}: cannot be read: {error}") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise InvalidConfig(f"{file}:{line}: not valid YAML: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise InvalidConfig(f"{file}: not valid YAML: {' '.join(str(error).split())}") from error
    except RecursionError:
        raise InvalidConfig(f"{file}: not valid YAML: nested too deeply") from None
    except (ValueError, LookupError, AttributeError, TypeError) as error:  # a tag on no such thing
        raise InvalidConfig(f"{file}: not valid YAML: {error}") from error
    if content is not None and not isinstance(content, dict):
        line = line_of(root) if root else 1
        raise InvalidConfig(f"{file}:{line}: expected keys with values, got {type(content).__name__}")
    return Document(file, content or {}, root)


def refuse_duplicates(file: Path, node: "yaml.Node | None", seen: set[int]) -> None:
    """YAML libraries let the last of two equal keys win without a word; here that is an error."""
    if node is None or not isinstance(node.value, list) or id(node) in seen:
        return
    seen.add(id(node))  # an alias may lead back to where it stands
    lines: dict[str, int] = {}
    for key, _ in pairs_of(node):
        name, line = str(key.value), line_of(key)
        if name in lines:
            raise InvalidConfig(f"{file}:{line}: {name!r} is given twice, first on line {lines[name]}")
        lines[name] = line
    for child in node.value:
        refuse_duplicates(file, child[1] if isinstance(child, tuple) else child, seen)


def pairs_of(node: "yaml.Node | None") -> list[tuple[Any, Any]]:
    """The keys and values of a mapping; none if the node is something else."""
    if node is None or not isinstance(node.value, list):
        return []
    return [child for child in node.value if isinstance(child, tuple)]


def line_of(node: "yaml.Node") -> int:
    """The line a node begins on, counted from one."""
    return int(node.start_mark.line) + 1
