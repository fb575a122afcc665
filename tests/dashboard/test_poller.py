"""Poller: metrics, failures and recovery, whatever the server responds."""

import socket
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from time import monotonic
from typing import Any

import pytest

from penstock.client import ConnectionLost, ConnectionRefused, HttpRefused
from penstock.dashboard import poller as poller_module
from penstock.dashboard.poller import REQUEST_TIMEOUT_S, STALE_AFTER_S, FailureKind, Poller, Source
from penstock.errors import PenstockError

METRICS = {"uptime_seconds": 1.0, "global": {"total_published": 3}, "topics": {}}


class Server:
    """Fake server with a configurable response."""

    def __init__(self) -> None:
        self.error: PenstockError | None = None
        self.response: Any = METRICS

    def metrics(self, *, limit: int) -> Any:
        if self.error is not None:
            raise self.error
        return self.response

    def slow(self) -> list[dict[str, Any]]:
        return [{"client_id": "snail", "is_slow": True}]


@pytest.fixture
def poller() -> Poller:
    return Poller(Source("http://10.0.0.1:8080", user="viewer"))


def ask(poller: Poller, server: Server) -> None:
    """Poll a fake server once."""
    poller.ask(server)  # type: ignore[arg-type]


def refused(code: str, status: int) -> HttpRefused:
    return HttpRefused("no", status=status, code=code, retryable=False, errors=[])


def test_a_response_is_stored_with_the_slow_subscribers(poller: Poller) -> None:
    ask(poller, Server())
    view = poller.view()
    assert view.failure is None
    assert view.metrics.total.total_published == 3
    assert [row.client_id for row in view.slow] == ["snail"]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConnectionRefused("no listener"), FailureKind.UNREACHABLE),
        (ConnectionLost("it broke"), FailureKind.UNREACHABLE),
        (refused("bad-credentials", 401), FailureKind.BAD_CREDENTIALS),
        (refused("not-authorized", 403), FailureKind.NOT_AUTHORIZED),
        (refused("not-found", 404), FailureKind.STRANGE),
    ],
)
def test_a_failure_names_the_request_and_gives_advice(
    poller: Poller, error: PenstockError, kind: FailureKind
) -> None:
    server = Server()
    server.error = error
    ask(poller, server)
    failure = poller.view().failure
    assert failure is not None
    assert (failure.kind, failure.text) == (kind, str(error))
    assert failure.tried == "GET http://10.0.0.1:8080/metrics"
    assert failure.title and failure.advice


def test_a_response_of_another_program_is_a_failure_and_polling_continues(poller: Poller) -> None:
    server = Server()
    server.response = {"hello": "world"}
    ask(poller, server)
    failure = poller.view().failure
    assert failure is not None and failure.kind is FailureKind.STRANGE


def test_a_failure_keeps_its_start_time_and_ends_with_the_next_response(poller: Poller) -> None:
    server = Server()
    ask(poller, server)
    server.error = ConnectionRefused("away")
    ask(poller, server)
    first = poller.view().failure
    ask(poller, server)
    again = poller.view()
    assert first is not None and again.failure is not None
    assert again.failure.since == first.since
    assert again.metrics.total.total_published == 3, "the last metrics are kept"
    server.error = None
    ask(poller, server)
    assert poller.view().failure is None


def test_a_server_is_silent_when_it_is_unreachable_or_its_response_is_late(
    poller: Poller, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server()
    assert not poller.is_silent, "no request was sent yet"
    ask(poller, server)
    assert not poller.is_silent
    monkeypatch.setattr(poller_module, "monotonic", lambda: monotonic() + STALE_AFTER_S + 1)
    assert poller.is_silent
    server.error = refused("not-authorized", 403)
    ask(poller, server)
    assert not poller.is_silent, "a refusal is a response"
    server.error = ConnectionLost("it broke")
    ask(poller, server)
    assert poller.is_silent


class OtherService(BaseHTTPRequestHandler):
    """Another HTTP service, which has JSON at every path but no metrics."""

    response = b"{}"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(self.response)))
        self.end_headers()
        self.wfile.write(self.response)

    def log_message(self, *_: object) -> None:
        """Silent."""


@pytest.mark.parametrize(
    "response",
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
def test_the_poller_continues_after_any_response_of_another_program(
    response: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OtherService, "response", response)
    with ThreadingHTTPServer(("127.0.0.1", 0), OtherService) as stranger:
        Thread(target=stranger.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        poller = Poller(Source(f"http://127.0.0.1:{stranger.server_port}"))
        with poller.source.connect() as client:
            poller.ask(client)
        stranger.shutdown()
    failure = poller.view().failure
    assert failure is not None and "Penstock server" in failure.text


def test_a_server_that_never_responds_does_not_delay_shutdown() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        poller = Poller(Source(f"http://127.0.0.1:{silent.getsockname()[1]}"))
        poller.start()
        asking = silent.accept()[0]
        asking.recv(1)
        began = monotonic()
        poller.stop()
        assert monotonic() - began < REQUEST_TIMEOUT_S - 1
        asking.close()
