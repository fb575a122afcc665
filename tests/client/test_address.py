"""Addresses of servers."""

import pytest

from penstock.client import HttpClient
from penstock.client.address import Address, grpc_target


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("http://a:8080", ("http", "a", 8080, "")),
        ("https://a", ("https", "a", 443, "")),
        ("a:81", ("http", "a", 81, "")),
        ("http://[::1]:8080/x/", ("http", "::1", 8080, "/x")),
    ],
)
def test_an_http_address_is_parsed(text: str, address: tuple[str, str, int, str]) -> None:
    assert Address.parse(text) == address


@pytest.mark.parametrize(
    "text", ["mqtt://a:1883", "http://", "http://a?b", "http://ann:secret@a", "http://a:x"]
)
def test_an_invalid_http_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"address|[Pp]ort"):
        HttpClient(text)


def test_an_address_is_formatted_as_it_is_parsed() -> None:
    assert str(Address.parse("http://[::1]:8080/x")) == "http://[::1]:8080/x"


@pytest.mark.parametrize(
    ("address", "target"),
    [("localhost", "localhost:5672"), ("a.b:1", "a.b:1"), ("[::1]:70", "[::1]:70"), ("[::1]", "[::1]:5672")],
)
def test_a_grpc_address_has_a_port_or_gets_the_default(address: str, target: str) -> None:
    assert grpc_target(address) == target


@pytest.mark.parametrize("address", ["", ":1", "a:", "a:x", "a:0", "a:70000", "http://a:1", "::1"])
def test_an_invalid_grpc_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="not a valid address"):
        grpc_target(address)
