"""CONTRIBUTING shows the tree as it is, and every module keeps the rules that it states."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "penstock"
MODULES = sorted(SOURCE.rglob("*.py"))
LARGEST_FOLDER = 16
PRIVATE_WORDS = re.compile(r"\b(attendance|for ever|go_on|of late|somebody|whoever)\b", re.IGNORECASE)
QUESTION = re.compile(r"(What|How|Who|Whom|Whose|Where|Which|Whether|Whatever|Whoever)\b")


def packages_below(folder: Path) -> set[str]:
    return {child.name for child in folder.iterdir() if (child / "__init__.py").exists()}


def tree() -> dict[str, set[str]]:
    """The packages that CONTRIBUTING names, by the folder they are in ("" for the rooms)."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    block = text.split("```text\n", 1)[1].split("```", 1)[0]
    inside = block.split("src/penstock/\n", 1)[1].split("\ntests/", 1)[0]
    found: dict[str, set[str]] = {"": set()}
    room = ""
    for line in inside.splitlines():
        indent = len(line) - len(line.lstrip())
        names = re.findall(r"(\w+)/", line)
        if indent == 2:
            room, *below = names
            found[""].add(room)
            found[room] = set(below)
        else:
            found[room].add(names[0])
    return found


def test_the_tree_names_every_room() -> None:
    assert tree()[""] == packages_below(SOURCE)


@pytest.mark.parametrize("room", ["core", "cli", "client", "dashboard", "doors", "spark", "wire"])
def test_the_tree_names_every_package_of_a_room(room: str) -> None:
    assert tree()[room] == packages_below(SOURCE / room)


@pytest.mark.parametrize(
    "folder", sorted({module.parent for module in MODULES} - {SOURCE}), ids=lambda path: path.name
)
def test_a_folder_has_few_entries(folder: Path) -> None:
    entries = [child.name for child in folder.iterdir() if child.name not in ("__pycache__", "__init__.py")]
    assert len(entries) <= LARGEST_FOLDER


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_docstring_does_not_open_with_a_question(module: Path) -> None:
    nodes = ast.walk(ast.parse(module.read_text(encoding="utf-8")))
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = [ast.get_docstring(node) or "" for node in nodes if isinstance(node, kinds)]
    assert [text.splitlines()[0] for text in docstrings if QUESTION.match(text)] == []


def test_every_module_of_core_has_a_stratum() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (strata,) = [each["layers"] for each in contracts if each["name"] == "strata of core import downwards"]
    named = {name.strip() for layer in strata for name in re.split("[|:]", layer)}
    core = SOURCE / "core"
    modules = {module.relative_to(core).with_suffix("").parts for module in core.rglob("*.py")}
    found = {".".join(parts) for parts in modules if parts[-1] != "__init__"}
    packages = {name for name in named if (core / name / "__init__.py").exists()}
    assert {name for name in found if name.partition(".")[0] not in packages} == named - packages


def test_modules_use_the_words_of_the_field() -> None:
    texts = {module: module.read_text(encoding="utf-8") for module in MODULES}
    found = {str(module): PRIVATE_WORDS.findall(text) for module, text in texts.items()}
    assert {module: words for module, words in found.items() if words} == {}
