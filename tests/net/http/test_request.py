"""Requests as routes get them, without the listener."""

import pytest

from penstock.net.door import Peer
from penstock.net.http.request import HostedRequest
from penstock.net.http.response import Headers

SECURE_PAGE = (b"origin", b"https://example.org")


class Caller:
    """What a caller of the application gets."""

    def __init__(self) -> None:
        self.responses: list[tuple[int, bytes, str]] = []

    def take(self, status: int, body: bytes, content_type: str, headers: Headers) -> None:
        self.responses.append((status, body, content_type))

    def ask(self, scheme: str = "http", *headers: tuple[bytes, bytes]) -> HostedRequest:
        return HostedRequest(Peer("127.0.0.1", 1), scheme, "GET", "/x", b"a=1", list(headers), self.take)


def test_first_response_of_a_hosted_request_is_its_only_one() -> None:
    caller = Caller()
    request = caller.ask()
    request.respond(200, b"{}")
    request.respond(500)
    assert caller.responses == [(200, b"{}", "application/json")]


def test_hosted_request_whose_caller_has_gone_gets_no_response() -> None:
    caller = Caller()
    request = caller.ask()
    request.is_disconnected = True
    request.respond(200)
    request.fail_internally()
    assert caller.responses == []


def test_hosted_request_has_no_connection_to_share_or_to_end() -> None:
    request = Caller().ask()
    request.is_exclusive = True
    request.share_connection()
    request.abandon()
    assert not request.is_exclusive
    assert request.begin().is_over
    assert request.parameters() == {"a": "1"}


@pytest.mark.parametrize(
    ("scheme", "headers", "is_encrypted"),
    [("http", (), False), ("https", (), True), ("http", (SECURE_PAGE,), True)],
)
def test_hosted_request_is_encrypted_by_its_scheme_or_its_page(
    scheme: str, headers: tuple[tuple[bytes, bytes], ...], is_encrypted: bool
) -> None:
    assert Caller().ask(scheme, *headers).is_encrypted is is_encrypted
