"""The numbered statements of the two MQTT standards, and which tests prove them.

A test says with `@v311("3.1.2-1")` or `@v5("3.1.2-7", "3.1.2-8")` what it proves; an id that the version
does not have is an error as soon as the test is imported. The wording in `statements.tsv` is our own.
"""

import csv
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import TypeVar

import pytest
from msgspec import Struct

from docs.conformance import Finding

FOLDER = Path(__file__).parent
MARKER = "statement"
WORST_FIRST = ("failed", "not run", "skipped", "passed")

Key = tuple[str, str]
"""Version and number: many a number occurs in both versions, with another meaning."""
Test = TypeVar("Test", bound=Callable[..., object])


class Statement(Struct, frozen=True):
    """One numbered sentence of a standard."""

    version: str
    id: str
    applies_to: str
    wording: str
    area: str

    @property
    def key(self) -> Key:
        return self.version, self.id.removeprefix("MQTT-")


def _read() -> Iterator[Statement]:
    with (FOLDER / "statements.tsv").open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        next(rows)  # the names of the columns
        for row in rows:
            yield Statement(*row)


STATEMENTS: Mapping[Key, Statement] = {one.key: one for one in _read()}

_REFUSED = {
    "3.1.1": """
        3.1.0-1 3.1.2-9 3.1.2-11 3.1.2-13 3.1.2-14 3.1.2-15 3.1.2-18 3.1.2-19 3.1.2-20 3.1.2-21 3.1.2-22
        3.1.3-1 3.1.3-3 3.1.3-4 3.1.3-7 3.1.3-10 3.1.3-11 3.8.3-1 3.10.3-1 4.7.1-2 4.7.1-3
        """,
    "5.0": """
        2.2.1-3 3.1.0-1 3.1.2-9 3.1.2-11 3.1.2-12 3.1.2-13 3.1.2-16 3.1.2-17 3.1.2-18 3.1.2-19 3.1.2-30
        3.1.3-1 3.1.3-3 3.1.3-4 3.1.3-11 3.1.3-12 3.2.2-11 3.2.2-14 3.2.2-15 3.2.2-17 3.2.2-18
        3.3.2-9 3.3.4-6 3.3.4-7 3.8.3-1 3.8.3-2 3.10.3-1 3.10.3-2 4.7.1-1 4.7.1-2 4.8.2-1 4.8.2-2
        4.12.0-7 4.12.1-1
        """,
}
REFUSED = frozenset((version, id) for version, ids in _REFUSED.items() for id in ids.split())
"""Duties of clients that a server sees broken: it has to refuse the packet or close the connection."""

NOT_APPLICABLE: Mapping[Key, str] = {
    ("3.1.1", "7.0.0-1"): "the server does not connect to other servers",
}
"""Statements that would bind a server but do not apply to this one, and why."""


def why_untested(statement: Statement) -> str:
    """Why no test is asked for; empty if one is."""
    if statement.applies_to == "client" and statement.key not in REFUSED:
        return "a duty of clients"
    return NOT_APPLICABLE.get(statement.key, "")


def statement(version: str, *ids: str) -> Callable[[Test], Test]:
    """Mark a test as a proof of these statements of a version."""
    if unknown := [id for id in ids if (version, id) not in STATEMENTS]:
        raise ValueError(f"MQTT {version} has no statement {', '.join(unknown)}")
    if not ids or len(set(ids)) < len(ids):
        raise ValueError(f"name each statement once: {ids}")
    mark: Callable[[Test], Test] = getattr(pytest.mark, MARKER)(version, *ids)
    return mark


v311 = partial(statement, "3.1.1")
v5 = partial(statement, "5.0")


@cache
def proofs() -> Mapping[str, tuple[Key, ...]]:
    """What every test of this folder proves; tests are named `file::test`."""
    modules = sorted(path.stem for path in FOLDER.glob("test_v*.py"))
    return {
        f"{module}.py::{name}": tuple(_marked(test))
        for module in modules
        for name, test in vars(import_module(f"tests.conformance.{module}")).items()
        if name.startswith("test_") and isinstance(test, FunctionType)
    }


def _marked(test: FunctionType) -> Iterator[Key]:
    for mark in getattr(test, "pytestmark", []):
        if mark.name == MARKER:
            version, *ids = mark.args
            yield from ((version, id) for id in ids)


def key_in(test: str) -> Key | None:
    """The statement that a test bears in its name, as in `test_v5_mqtt_3_1_2_7_...`."""
    if found := re.search(r"::test_v(311|5)_mqtt_(\d+)_(\d+)_(\d+)_(\d+)_", test):
        version, *parts, number = found.groups()
        return "3.1.1" if version == "311" else "5.0", f"{'.'.join(parts)}-{number}"
    return None


def findings(outcomes: Mapping[str, str]) -> list[Finding]:
    """What there is to say about each statement, given how the tests ended."""
    return [_finding(one, outcomes) for one in STATEMENTS.values()]


def _finding(one: Statement, outcomes: Mapping[str, str]) -> Finding:
    tests = tuple(test for test, keys in proofs().items() if one.key in keys)
    if tests:
        result = min((outcomes.get(test, "not run") for test in tests), key=WORST_FIRST.index)
        return Finding(one.version, one.id, one.wording, tests, "", result)
    reason = why_untested(one)
    return Finding(one.version, one.id, one.wording, (), reason, "not applicable" if reason else "no test")
