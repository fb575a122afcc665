"""`penstock demo`: finds the example in a checkout and in an installed wheel."""

import shutil
import sys
import tomllib
from pathlib import Path

import pytest

import penstock
from penstock.cli.commands.demo import load_tour
from penstock.errors import InvalidConfig

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def imports_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each test import the example anew."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in [name for name in sys.modules if name.partition(".")[0] == "plant"]:
        monkeypatch.delitem(sys.modules, name)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of the package, as in an installation without the example."""
    package = tmp_path / "lib" / "site-packages" / "penstock"
    package.mkdir(parents=True)
    monkeypatch.setattr(penstock, "__file__", str(package / "__init__.py"))
    return package


def test_checkout_has_the_example_beside_the_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setattr(penstock, "__file__", str(ROOT / "src" / "penstock" / "__init__.py"))
    assert Path(load_tour().__file__) == ROOT / "examples" / "plant" / "tour.py"


def test_wheel_has_the_example_inside_the_package(installed: Path) -> None:
    pytest.importorskip("pyspark")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    [(source, target)] = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"].items()
    shutil.copytree(ROOT / source, installed.parent / target)
    tour = load_tour()
    assert Path(tour.__file__) == installed / "examples" / "plant" / "tour.py"
    assert callable(tour.show_tour)
    assert issubclass(tour.PlantError, Exception)


def test_missing_example_is_reported(installed: Path) -> None:
    with pytest.raises(InvalidConfig, match="examples/plant is missing"):
        load_tour()
