"""Rows and facts on standard output: a table for people, plain text for programs, JSON if asked for.

Columns have the names of the API. Where standard output is no terminal, a row is a line with tabs between its
values, below a line with the names, and a fact is a line `name: value`; what is not there is `-`. JSON is one
object a line, as the API has it.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec

from penstock.cli.output import Output
from penstock.cli.text import one_line
from penstock.cli.units import ABSENT

Row = Mapping[str, Any]


def print_rows(rows: Iterable[Row], columns: Sequence[str], output: Output, nothing: str) -> None:
    """Write rows as they come, or as a table when all are there.

    Args:
        nothing: what a person is told when there are none.
    """
    if output is Output.JSON:
        print_json(rows)
    elif sys.stdout.isatty():
        _print_table(list(rows), columns, nothing)
    else:
        _print_lines(rows, columns)


def print_facts(facts: Row, output: Output) -> None:
    """Write what is known of one thing, a line for each fact."""
    if output is Output.JSON:
        print_json([facts])
    else:
        print_pairs(_flat(facts))


def print_pairs(facts: Iterable[tuple[str, str]]) -> None:
    """Write facts that are text already, by their names."""
    if sys.stdout.isatty():
        from penstock.cli.drawing import draw_facts  # noqa: PLC0415 - it takes a while

        draw_facts(facts)
    else:
        for name, value in facts:
            print(f"{name}: {value}")


def _flat(facts: Row, within: str = "") -> Iterator[tuple[str, str]]:
    """Facts by name: those of a part with dots in it, those of a list one by one."""
    for key, value in facts.items():
        name = f"{within}{text_of(key)}"
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name}.")
        elif isinstance(value, list):
            yield from ((name, _entry(each)) for each in value)
        else:
            yield name, text_of(value)


def _entry(value: object) -> str:
    if not isinstance(value, Mapping):
        return text_of(value)
    return ", ".join(f"{text_of(name)} {text_of(each)}" for name, each in value.items())


def print_json(values: Iterable[Row]) -> None:
    """Write one object a line."""
    for value in values:
        sys.stdout.write(msgspec.json.encode(value).decode() + "\n")


def text_of(value: object) -> str:
    """A value as one piece of a line, without anything that could end it or give orders to a terminal."""
    if value is None or value == "":
        return ABSENT
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, dict | list | tuple):
        return one_line(msgspec.json.encode(value))
    return one_line(str(value).encode(errors="replace"))


def _print_lines(rows: Iterable[Row], columns: Sequence[str]) -> None:
    waiting = iter(rows)
    first = next(waiting, None)  # before anything is written, so that a failure comes alone
    print("\t".join(columns))
    for row in () if first is None else chain((first,), waiting):
        print("\t".join(text_of(row.get(column)) for column in columns))


def _print_table(rows: Sequence[Row], columns: Sequence[str], nothing: str) -> None:
    if not rows:
        print(nothing)
        return
    from penstock.cli.drawing import draw_table  # noqa: PLC0415 - it takes a while

    cells = [[text_of(row.get(column)) for column in columns] for row in rows]
    draw_table(columns, cells, [all(_is_number(row.get(column)) for row in rows) for column in columns])


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
