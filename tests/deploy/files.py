"""The files that tell how to run a server, as the tests find them."""

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
HOW_TO = ROOT / "docs" / "how-to"


def read(path: Path) -> str:
    """A file's text."""
    return path.read_text(encoding="utf-8")


def read_yaml(path: Path) -> Any:
    """A YAML file with one document."""
    return yaml.safe_load(read(path))


def anchors_of(page: Path) -> set[str]:
    """What a link into a page may end with."""
    titles = re.findall(r"^#+ (.+)$", read(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
