"""Every statement that binds a server has a test, and the page about conformance lists them all."""

import re
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from docs.conformance import PAGE, Finding, conformance_page
from tests.conformance.outcomes import Outcomes
from tests.conformance.statements import (
    NOT_APPLICABLE,
    REFUSED,
    STATEMENTS,
    findings,
    key_in,
    proofs,
    v5,
    why_untested,
)

PREFIXES = {"3.1.1": "test_v311_", "5.0": "test_v5_"}


@pytest.mark.parametrize("version", PREFIXES)
def test_every_statement_that_binds_a_server_has_a_test(version: str) -> None:
    proved = {key for keys in proofs().values() for key in keys}
    wanted = [one for one in STATEMENTS.values() if one.version == version and not why_untested(one)]
    assert [one.id for one in wanted if one.key not in proved] == []


def test_statements_that_do_not_apply_have_no_test() -> None:
    assert [test for test, keys in proofs().items() if set(keys) & set(NOT_APPLICABLE)] == []


def test_statements_that_do_not_apply_or_are_refused_exist() -> None:
    assert REFUSED | set(NOT_APPLICABLE) <= set(STATEMENTS)
    assert {STATEMENTS[key].applies_to for key in REFUSED} == {"client"}


@pytest.mark.parametrize(("version", "count"), [("3.1.1", 141), ("5.0", 251)])
def test_no_statement_of_the_standard_is_left_out(version: str, count: int) -> None:
    assert len([one for one in STATEMENTS.values() if one.version == version]) == count


def test_tests_are_named_after_the_version_and_the_statement_they_prove() -> None:
    for test, keys in proofs().items():
        assert keys, f"{test} proves nothing"
        assert all(f"::{PREFIXES[version]}" in test for version, _ in keys), test
        assert key_in(test) in {None, *keys}, test


@pytest.mark.parametrize("ids", [("9.9.9-9",), ("3.1.0-1", "3.1.0-1"), ("MQTT-3.1.0-1",), ()])
def test_a_wrong_mark_is_refused_when_it_is_written(ids: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="statement"):
        v5(*ids)


@pytest.mark.parametrize(
    ("ended", "result"),
    [
        (["passed", "passed"], "passed"),
        (["passed", "failed", "passed"], "failed"),
        (["skipped", "passed"], "skipped"),
        ([], "not run"),
    ],
)
def test_a_statement_has_the_worst_result_of_all_the_cases_of_its_tests(
    tmp_path: Path, ended: list[Literal["passed", "failed", "skipped"]], result: str
) -> None:
    (test,) = [test for test, keys in proofs().items() if ("3.1.1", "3.1.0-1") in keys]
    outcomes = Outcomes(tmp_path / "findings")
    for number, outcome in enumerate(ended):
        case = f"tests/conformance/{test}[a/b[{number}]]"
        outcomes.pytest_runtest_logreport(pytest.TestReport(case, ("", 0, ""), {}, outcome, None, "call"))
    outcomes.pytest_sessionfinish()
    told = msgspec.json.decode((tmp_path / "findings").read_bytes(), type=list[Finding])
    assert [one.result for one in told if one.tests == (test,)] == [result]
    assert {one.result for one in told if one.reason} == {"not applicable"}


def test_the_page_lists_exactly_these_tests() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert rows_of(page) == rows_of(conformance_page(findings({}))), "run `make docs`"


def rows_of(page: str) -> list[str]:
    """The rows about statements, without the results of the run that the page was made by."""
    return [row.rpartition(" | ")[0] for row in re.findall(r"^\| MQTT-.*$", page, re.MULTILINE)]
