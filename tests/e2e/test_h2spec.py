"""HTTP/2 of the gRPC port, held against h2spec, a conformance suite for RFC 7540.

The suite is older than RFC 9113, and is for servers of pages. `EXCEPTIONS` has the cases that do not pass,
with the reason why the port is right.
"""

import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.e2e.driven_clients import PROGRAMS
from tests.support.builds import go_build
from tests.support.servers import RunningServer

pytestmark = pytest.mark.timeout(600)  # the first run compiles it

NO_SUCH_METHOD = "/test.Nothing/Here"
PATIENCE_S = 1
MORE_PATIENCE_S = (5, 15, 30)
"""Time for a response, and for those of a case that gets more tries: a busy machine may take longer, and a
call that ends at once may end before the frame that breaks a rule is there."""
NO_BODY = "the case waits for DATA; a call that ends at once has a response of HEADERS alone"
NO_PRIORITY = "RFC 9113, 5.3.2, has no priorities any more, so that no dependency is wrong"
EXCEPTIONS = {
    "generic/2/2": NO_BODY,
    "generic/2/3": NO_BODY,
    "http2/3.5/2": "the connection ends, but after a response of HTTP/1, which the case cannot read",
    "http2/5.1.2/1": "the calls of the case end at once, so that there are never too many of them",
    "http2/5.3.1/1": NO_PRIORITY,
    "http2/5.3.1/2": NO_PRIORITY,
}

ENDED_BEFORE = "the call ends with its HEADERS; DATA of a wrong length is seen only if it comes with them"
RACES = dict.fromkeys(("http2/8.1.2.6/1", "http2/8.1.2.6/2"), ENDED_BEFORE)
"""Cases that pass or not, as the packets happen to be cut."""


class H2spec:
    """The suite, at a server."""

    def __init__(self, server: RunningServer, folder: Path) -> None:
        self._program = go_build(PROGRAMS, "github.com/summerwind/h2spec/cmd/h2spec") / "h2spec"
        self._port = server.port_of("grpc")
        self._report = folder / "report.xml"

    def run(self, patience_s: int, *cases: str) -> tuple[int, set[str]]:
        """Run all cases or some; return how many there were, and those that did not pass."""
        words = [
            str(self._program),
            "--host",
            "127.0.0.1",
            "--port",
            str(self._port),
            "--path",
            NO_SUCH_METHOD,
        ]
        words += ["--timeout", str(patience_s), "--junit-report", str(self._report), *cases]
        self._report.unlink(missing_ok=True)
        subprocess.run(words, capture_output=True, timeout=300, check=False)
        return read_report(self._report)


def read_report(file: Path) -> tuple[int, set[str]]:
    """Number of cases that ran, and those that failed, as `section/number`."""
    count, failed = 0, set()
    for section in ElementTree.parse(file).getroot():  # noqa: S314 - our own program wrote it
        for number, case in enumerate(section, 1):
            count += case.find("skipped") is None
            if case.find("error") is not None or case.find("failure") is not None:
                failed.add(f"{section.get('package')}/{number}")
    return count, failed


def test_every_case_passes_but_for_those_that_are_wrong(server: RunningServer, tmp_path: Path) -> None:
    suite = H2spec(server, tmp_path)
    count, failed = suite.run(PATIENCE_S)
    assert count == 141
    for case in failed - set(EXCEPTIONS) - set(RACES):
        assert any(not suite.run(patience_s, case)[1] for patience_s in MORE_PATIENCE_S), case
    assert failed >= set(EXCEPTIONS)
