"""What MkDocs does besides: files outside of `docs` that pages link to become part of the site.

On a forge such links lead to the files themselves. On the site a Markdown file becomes a page, a source file
a page with its text, and anything else a copy. So a page is written once, for both.
"""

import re
from collections.abc import Iterator
from os.path import relpath
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PROJECT = "project"
"""The folder of the site that has what is outside of `docs`."""
LINK = re.compile(r"(?<=\]\()(?P<address>[^)#\s:]+)(?P<anchor>#[^)\s]*)?(?=\))")
LANGUAGES = {
    ".go": "go",
    ".java": "java",
    ".js": "javascript",
    ".proto": "proto",
    ".py": "python",
    ".yaml": "yaml",
    ".toml": "toml",
    ".service": "ini",
    "": "text",
}
"""Kinds of files that are shown as text."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is linked to; pages that come with it may link to more."""
    waiting = [DOCS / file.src_uri for file in files.documentation_pages()]
    seen: set[Path] = set()
    while waiting:
        page = waiting.pop()
        for target in set(_outside(page)) - seen:
            seen.add(target)
            files.append(_file_of(target, config))
            waiting += [target] if target.suffix == ".md" else []
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links lead to where their targets are on the site."""
    place = page.file.src_uri
    origin = ROOT / place.removeprefix(f"{PROJECT}/") if place.startswith(f"{PROJECT}/") else DOCS / place
    return LINK.sub(lambda found: _relinked(found, origin, place), markdown)


def _outside(page: Path) -> Iterator[Path]:
    """The files of the project that a page links to."""
    for found in LINK.finditer(page.read_text(encoding="utf-8")):
        target = (page.parent / found["address"]).resolve()
        if target.is_file() and target.is_relative_to(ROOT) and not target.is_relative_to(DOCS):
            yield target


def _file_of(target: Path, config: MkDocsConfig) -> File:
    uri = _uri_of(target)
    if target.suffix == ".md":
        return File.generated(config, uri, content=target.read_text(encoding="utf-8"))
    if target.suffix in LANGUAGES:
        return File.generated(config, uri, content=_shown(target))
    return File.generated(config, uri, abs_src_path=str(target))


def _shown(target: Path) -> str:
    """A page with the text of a file; the search does not look into it."""
    text, name = target.read_text(encoding="utf-8"), target.relative_to(ROOT)
    head = f"---\nsearch:\n  exclude: true\n---\n# {name}\n\n"
    return f"{head}````{LANGUAGES[target.suffix]}\n{text}````\n"


def _uri_of(target: Path) -> str:
    """Where a file is among the sources of the site."""
    if target.is_relative_to(DOCS):
        return target.relative_to(DOCS).as_posix()
    ending = ".md" if target.suffix in LANGUAGES else ""
    return f"{PROJECT}/{target.relative_to(ROOT).as_posix()}{ending}"


def _relinked(found: re.Match[str], origin: Path, place: str) -> str:
    target = (origin.parent / found["address"]).resolve()
    if not target.is_file() or not target.is_relative_to(ROOT):
        return found[0]
    return relpath(_uri_of(target), Path(place).parent) + (found["anchor"] or "")
