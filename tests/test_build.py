"""Compiled and pure builds: every listed module is one that mypyc compiles to the same behaviour."""

import ast
import shutil
import tomllib
import traceback
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import httpx
import mypyc
import pytest
from msgspec import Struct

from penstock.build import build_name, is_compiled
from penstock.wire.mqtt import ack_runs
from tests.support.fork_server import ForkedProcess
from tests.support.servers import StartServer

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
COMPILED = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["modules"]
MODULES = sorted(str(path.relative_to(SOURCE)) for path in (SOURCE / "penstock").rglob("*.py"))
UNCHECKED = frozenset({"kw_only", "rename"})
"""Keywords of a Struct that leave nothing in its configuration."""
WEAK = frozenset({"ReferenceType", "WeakKeyDictionary", "WeakSet", "WeakValueDictionary", "finalize", "ref"})


@cache
def parse(module: str) -> ast.Module:
    return ast.parse((SOURCE / module).read_text(encoding="utf-8"))


def name_of(module: str) -> str:
    return module.removesuffix("/__init__.py").removesuffix(".py").replace("/", ".")


def classes_of(module: str) -> list[ast.ClassDef]:
    return [node for node in ast.walk(parse(module)) if isinstance(node, ast.ClassDef)]


def last_name(node: ast.expr) -> str:
    """`Ring` of `Ring`, `ring.Ring` and `Ring[T]`."""
    if isinstance(node, ast.Subscript):
        return last_name(node.value)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def is_protocol(node: ast.ClassDef) -> bool:
    return "Protocol" in map(last_name, node.bases)


def test_every_module_of_the_list_exists_and_is_named_once() -> None:
    assert list(dict.fromkeys(COMPILED)) == COMPILED
    assert set(COMPILED) <= set(MODULES)


@pytest.mark.parametrize("module", COMPILED)
def test_module_of_the_list_is_compiled_if_any_is(module: str) -> None:
    found = find_spec(name_of(module))
    assert found is not None and found.origin is not None
    assert found.origin.endswith(tuple(EXTENSION_SUFFIXES)) == is_compiled()
    source = Path(found.origin).with_name(Path(module).name)
    assert source.exists(), "tracebacks show its lines"


def test_module_that_is_not_listed_is_not_compiled() -> None:
    found = find_spec("penstock.errors")
    assert found is not None and str(found.origin).endswith(".py")


def test_servers_that_tests_start_are_of_the_same_build(start_server: StartServer) -> None:
    settings = {"http": {"port": 0}}
    forked, fresh = start_server(settings), start_server(settings, environment={"TZ": "UTC"})
    assert isinstance(forked.process, ForkedProcess) and not isinstance(fresh.process, ForkedProcess)
    for server in (forked, fresh):
        health = httpx.get(f"http://127.0.0.1:{server.port_of('http')}/health").json()
        assert health["build"] == build_name()


# What mypyc compiles to something else, or not at all


@pytest.mark.parametrize("module", COMPILED)
def test_no_struct_has_class_keywords(module: str) -> None:
    """mypyc drops them silently, and with them the stored format (python/mypy#21938)."""
    assert [node.name for node in classes_of(module) if node.keywords] == []


class Keyword(NamedTuple):
    """A keyword of a Struct in its source."""

    module: str
    path: str
    """The names of the class and those around it."""
    name: str
    value: object


def keywords_of(module: str) -> Iterator[Keyword]:
    for node in parse(module).body:
        if isinstance(node, ast.ClassDef):
            for keyword in node.keywords:
                if keyword.arg not in (None, *UNCHECKED) and isinstance(keyword.value, ast.Constant):
                    yield Keyword(module, node.name, str(keyword.arg), keyword.value.value)


KEYWORDS = [each for module in MODULES if "/dashboard/pages/" not in module for each in keywords_of(module)]


def test_every_struct_is_what_its_source_says() -> None:
    wrong, checked = [], 0
    for keyword in KEYWORDS:
        found = getattr(import_module(name_of(keyword.module)), keyword.path)
        if not issubclass(found, Struct):
            continue
        checked += 1
        if getattr(found.__struct_config__, keyword.name) != keyword.value:
            wrong.append(keyword)
    assert wrong == []
    assert checked > 100


@pytest.mark.parametrize("module", COMPILED)
def test_class_with_a_length_says_when_it_is_true(module: str) -> None:
    """`if queue:` asks compiled classes for `__bool__` alone, never for `__len__`."""
    for node in classes_of(module):
        methods = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
        assert "__len__" not in methods or "__bool__" in methods or is_protocol(node), node.name


NATIVE = {
    (name_of(module), node.name)
    for module in COMPILED
    for node in classes_of(module)
    if not is_protocol(node)
}


def native_names(module: str) -> set[str]:
    """Names of compiled classes that a module imports, also from the package that shows them, or defines."""
    exported = {name for _, name in NATIVE}
    found = {node.name for node in classes_of(module) if (name_of(module), node.name) in NATIVE}
    for node in ast.walk(parse(module)):
        if isinstance(node, ast.ImportFrom):
            where = node.module or ""
            known = {name for place, name in NATIVE if place == where or place.startswith(f"{where}.")}
            found |= {each.asname or each.name for each in node.names if each.name in known & exported}
    return found


@pytest.mark.parametrize("module", [each for each in MODULES if each not in COMPILED])
def test_interpreted_class_does_not_inherit_from_a_compiled_one(module: str) -> None:
    names = native_names(module)
    assert [node.name for node in classes_of(module) if names & set(map(last_name, node.bases))] == []


@pytest.mark.parametrize("module", MODULES)
def test_no_compiled_class_is_weakly_referenced(module: str) -> None:
    """Types of weak containers, and what a module with compiled classes makes weak references to."""
    names = native_names(module)
    for node in ast.walk(parse(module)):
        if isinstance(node, ast.Subscript) and last_name(node.value) in WEAK:
            held = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            assert names.isdisjoint(map(last_name, held)), ast.unparse(node)
        if isinstance(node, ast.ClassDef) and (name_of(module), node.name) in NATIVE:
            assert "__weakref__" not in ast.dump(node), f"{node.name}: mypyc ignores it"


def test_runtime_of_mypyc_throws_exceptions_as_new_versions_of_python_want_it(tmp_path: Path) -> None:
    hook = import_module("hatch_build")
    copied = Path(shutil.copy(Path(mypyc.__file__).parent / "lib-rt" / hook.RUNTIME_FILE, tmp_path))
    hook.mend_runtime(tmp_path)
    text = copied.read_text(encoding="utf-8")
    assert (text.count(hook.DEPRECATED_THROW), text.count(hook.THROW)) == (0, 1)


def test_traceback_through_the_hot_path_names_file_and_line() -> None:
    [source] = [module for module in COMPILED if name_of(module) == ack_runs.__name__]
    lines = (SOURCE / source).read_text(encoding="utf-8").splitlines()
    with pytest.raises(ValueError, match="99") as caught:
        repr(ack_runs.AckRun(99, (1,)))
    [frame] = [each for each in traceback.extract_tb(caught.tb) if each.filename.endswith(source)]
    assert frame.lineno is not None
    assert "PacketType(self.kind)" in lines[frame.lineno - 1]
    assert frame.name == "__repr__"
