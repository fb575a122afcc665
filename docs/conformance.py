"""Runs the tests of conformance and writes the page about them; `make docs` runs it.

The page says of each numbered statement of the two standards what it asks, which tests prove it, and how
they ended. To change the page, change the tests.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from msgspec import Struct

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "mqtt-conformance.md"
INTRODUCTION = """\
# MQTT conformance

Generated from the tests and their outcomes by `make docs`; do not edit it here.

Each numbered statement of the two MQTT standards, in our words, with the tests that prove it against a real
server on a socket. What the standards ask of clients has a test where a server can see it broken. The tests
are in `tests/conformance`; `pytest tests/conformance` runs them.
"""


class Finding(Struct, frozen=True):
    """What the page says about one statement; without tests, `reason` says why there are none."""

    version: str
    id: str
    wording: str
    tests: tuple[str, ...]
    """As `file::test`."""
    reason: str
    result: str


def conformance_page(findings: Sequence[Finding]) -> str:
    """The whole page, as text."""
    versions = list(dict.fromkeys(finding.version for finding in findings))
    by_version = {version: [one for one in findings if one.version == version] for version in versions}
    parts = [INTRODUCTION, _summary(by_version)]
    for version, those in by_version.items():
        rows = ["| statement | what it asks | tests | result |", "| --- | --- | --- | --- |"]
        parts += [f"## MQTT {version}\n", "\n".join([*rows, *map(_row, those)]) + "\n"]
    return "\n".join(parts)


def _summary(by_version: dict[str, list[Finding]]) -> str:
    rows = ["| version | statements | tested | passed | not applicable |", "| --- | --- | --- | --- | --- |"]
    for version, findings in by_version.items():
        tested = [finding for finding in findings if finding.tests]
        passed = [finding for finding in tested if finding.result == "passed"]
        inapplicable = [finding for finding in findings if finding.reason]
        cells = [version, *(str(len(those)) for those in (findings, tested, passed, inapplicable))]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def _row(finding: Finding) -> str:
    cell = "<br>".join(map(_link, finding.tests)) or finding.reason
    return f"| {finding.id} | {finding.wording} | {cell} | {finding.result} |"


def _link(test: str) -> str:
    file, _, name = test.partition("::")
    return f"[{name}](../../tests/conformance/{file})"


def run_tests() -> list[Finding]:
    """Run them all; that some fail is for the page to say."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "findings.json"
        words = [sys.executable, "-m", "pytest", "-q", "tests/conformance", "--findings", str(file)]
        subprocess.run(words, cwd=ROOT, check=False)
        return msgspec.json.decode(file.read_bytes(), type=list[Finding])


if __name__ == "__main__":
    PAGE.write_text(conformance_page(run_tests()), encoding="utf-8")
