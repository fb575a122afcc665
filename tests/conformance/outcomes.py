"""How each test of conformance ended, written to a file from which the page about them is made."""

from pathlib import Path

import msgspec
import pytest

from tests.conformance.statements import WORST_FIRST, findings


class Outcomes:
    """Listens to pytest. The cases of a parametrised test count as one, by the worst of them."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = report.nodeid.partition("[")[0].rpartition("/")[2]
        known = self._outcomes.get(test, "passed")
        self._outcomes[test] = min(known, report.outcome, key=WORST_FIRST.index)

    def pytest_sessionfinish(self) -> None:
        self._file.write_bytes(msgspec.json.encode(findings(self._outcomes)))
