"""The poller: one question a second for everybody, whatever becomes of the server."""

import socket
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from time import monotonic
from typing import Any

import pytest

from penstock.client import ConnectionLost, ConnectionRefused, HttpRefused
from penstock.dashboard import poll
from penstock.dashboard.poll import SILENCE_S, Poller
from penstock.dashboard.source import TIMEOUT_S, Source
from penstock.dashboard.trouble import Kind
from penstock.errors import PenstockError

FIGURES = {"uptime_seconds": 1.0, "global": {"total_published": 3}, "topics": {}}


class Server:
    """A server that answers as a test wants it to."""

    def __init__(self) -> None:
        self.error: PenstockError | None = None
        self.answer: Any = FIGURES

    def metrics(self, *, limit: int) -> Any:
        if self.error is not None:
            raise self.error
        return self.answer

    def slow(self) -> list[dict[str, Any]]:
        return [{"client_id": "snail", "is_slow": True}]


@pytest.fixture
def poller() -> Poller:
    return Poller(Source("http://10.0.0.1:8080", user="viewer"))


def refused(code: str, status: int) -> HttpRefused:
    return HttpRefused("no", status=status, code=code, retryable=False, errors=[])


def test_an_answer_is_kept_with_who_is_slow(poller: Poller) -> None:
    poller.ask(Server())  # type: ignore[arg-type]
    view = poller.view()
    assert view.trouble is None
    assert view.figures.total.total_published == 3
    assert [row.client_id for row in view.slow] == ["snail"]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConnectionRefused("nobody there"), Kind.UNREACHABLE),
        (ConnectionLost("it broke"), Kind.UNREACHABLE),
        (refused("bad-credentials", 401), Kind.BAD_CREDENTIALS),
        (refused("not-authorized", 403), Kind.NOT_AUTHORIZED),
        (refused("not-found", 404), Kind.STRANGE),
    ],
)
def test_trouble_says_what_was_tried_and_what_to_try(
    poller: Poller, error: PenstockError, kind: Kind
) -> None:
    server = Server()
    server.error = error
    poller.ask(server)  # type: ignore[arg-type]
    trouble = poller.view().trouble
    assert trouble is not None
    assert (trouble.kind, trouble.text) == (kind, str(error))
    assert trouble.tried == "GET http://10.0.0.1:8080/metrics"
    assert trouble.title and trouble.advice


def test_what_is_no_answer_of_a_server_is_trouble_and_no_end(poller: Poller) -> None:
    server = Server()
    server.answer = {"hello": "world"}
    poller.ask(server)  # type: ignore[arg-type]
    trouble = poller.view().trouble
    assert trouble is not None and trouble.kind is Kind.STRANGE


def test_trouble_began_when_it_began_and_goes_with_the_next_answer(poller: Poller) -> None:
    server = Server()
    poller.ask(server)  # type: ignore[arg-type]
    server.error = ConnectionRefused("away")
    poller.ask(server)  # type: ignore[arg-type]
    first = poller.view().trouble
    poller.ask(server)  # type: ignore[arg-type]
    again = poller.view()
    assert first is not None and again.trouble is not None
    assert again.trouble.since == first.since
    assert again.figures.total.total_published == 3, "what was known stays"
    server.error = None
    poller.ask(server)  # type: ignore[arg-type]
    assert poller.view().trouble is None


def test_a_server_is_silent_when_it_is_away_or_lets_a_question_wait(
    poller: Poller, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server()
    assert not poller.is_silent, "it was not asked yet"
    poller.ask(server)  # type: ignore[arg-type]
    assert not poller.is_silent
    monkeypatch.setattr(poll, "monotonic", lambda: monotonic() + SILENCE_S + 1)
    assert poller.is_silent
    server.error = refused("not-authorized", 403)
    poller.ask(server)  # type: ignore[arg-type]
    assert not poller.is_silent, "it says no"
    server.error = ConnectionLost("it broke")
    poller.ask(server)  # type: ignore[arg-type]
    assert poller.is_silent


class Stranger(BaseHTTPRequestHandler):
    """Another service, which has JSON to say at every address; of figures it knows nothing."""

    answer = b"{}"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(self.answer)))
        self.end_headers()
        self.wfile.write(self.answer)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.mark.parametrize(
    "answer",
    [
        b"[]",
        b"[1]",
        b'"pong"',
        b"null",
        b"7",
        b"<html>",
        b'{"uptime_seconds": 1, "global": {}}',
        b"[" * 9_999,
    ],
    ids=["list", "numbers", "text", "null", "number", "html", "half", "deep"],
)
def test_the_poller_goes_on_whoever_answers_and_whatever(
    answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Stranger, "answer", answer)
    with ThreadingHTTPServer(("127.0.0.1", 0), Stranger) as stranger:
        Thread(target=stranger.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        poller = Poller(Source(f"http://127.0.0.1:{stranger.server_port}"))
        with poller.source.connect() as client:
            poller.ask(client)
        stranger.shutdown()
    trouble = poller.view().trouble
    assert trouble is not None and "Penstock server" in trouble.text


def test_a_server_that_never_answers_does_not_hold_up_the_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        poller = Poller(Source(f"http://127.0.0.1:{silent.getsockname()[1]}"))
        poller.start()
        asking = silent.accept()[0]
        asking.recv(1)
        began = monotonic()
        poller.stop()
        assert monotonic() - began < TIMEOUT_S - 1
        asking.close()
