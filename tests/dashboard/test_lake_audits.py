"""The report of an audit that somebody keeps in a lake."""

import shlex
from pathlib import Path

import msgspec
import pytest

from penstock.dashboard.lakes.audits import REPORT, last_audit
from penstock.dashboard.lakes.beginning import audit_command, commands_for
from penstock.dashboard.lakes.showing import findings_text
from penstock.dashboard.source import Source
from penstock.pipeline.jobs.report import Report
from penstock.pipeline.lake import InvalidLake


def keep(lake: Path, **given: object) -> None:
    facts = {"version": 48, "rows": 80_112, "missing": 0, "double": 0, "damaged_files": 0, "known": {}}
    report = Report(job="audit", facts=facts)
    (lake / REPORT).write_bytes(msgspec.json.encode(msgspec.structs.replace(report, **given)) + b"\n")


def test_a_clean_audit_is_told(tmp_path: Path) -> None:
    keep(tmp_path)
    audit = last_audit(tmp_path)
    assert audit is not None and (audit.is_clean, audit.version, audit.rows) == (True, 48, 80_112)


def test_what_an_audit_found_is_told(tmp_path: Path) -> None:
    keep(tmp_path, facts={"version": 2, "rows": 10, "missing": 1_200, "damaged_files": 1}, is_clean=False)
    audit = last_audit(tmp_path)
    assert audit is not None and not audit.is_clean
    assert findings_text(audit.findings) == "1,200 missing, 1 damaged files"


def test_a_lake_without_a_report_has_none(tmp_path: Path) -> None:
    assert last_audit(tmp_path) is None


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"job": "archive", "facts": {}}', b'{"job":"audit","facts":{"rows":"x"}}']
)
def test_another_file_is_not_taken_for_a_report(tmp_path: Path, content: bytes) -> None:
    (tmp_path / REPORT).write_bytes(content)
    with pytest.raises(InvalidLake, match="no report of an audit"):
        last_audit(tmp_path)


def test_the_command_keeps_the_report_where_it_is_looked_for(tmp_path: Path) -> None:
    lake = tmp_path / "my lake"
    words = shlex.split(audit_command(lake, "http://h:8080"))
    assert words[-1] == str(lake / REPORT) and words[words.index("--lake") + 1] == str(lake)


def test_commands_name_the_server_and_never_a_password() -> None:
    commands = commands_for(Source("https://plant:8443", "ann", "secret", lake=Path("/srv/a b")))
    assert "--address https://plant:8443 --user ann --password-file FILE" in commands
    assert "'/srv/a b'" in commands and "secret" not in commands
