"""Probe: a client with a wrong address is told what is there, without waiting for its time limit."""

import asyncio

import pytest

import penstock
from penstock.client import ConnectionRefused
from penstock.client.address import Address
from penstock.client.errors import error_from_status
from penstock.client.probe import describe_grpc_mismatch
from tests.support.ports import free_port
from tests.support.servers import RunningServer

LONG_S = 600.0
"""Far longer than a test may take: no client has waited for it."""


async def test_another_protocol_at_the_address_is_named(server: RunningServer) -> None:
    address = f"127.0.0.1:{server.port_of('mqtt')}"
    client = penstock.connect(address, connect_timeout_s=LONG_S, timeout_s=LONG_S)
    with pytest.raises(ConnectionRefused, match=f"{address} speaks MQTT, not gRPC"):
        async with asyncio.timeout(60):
            await client.open()


def test_grpc_without_tls_is_named_to_a_client_with_tls(server: RunningServer) -> None:
    address = Address("grpc", "127.0.0.1", server.port_of("grpc"), "")
    said = describe_grpc_mismatch(address, is_secure=True)
    assert said is not None and "connect without tls" in said
    assert describe_grpc_mismatch(address, is_secure=False) is None


def test_nothing_is_said_where_nothing_listens() -> None:
    assert describe_grpc_mismatch(Address("grpc", "127.0.0.1", free_port(), ""), is_secure=False) is None


async def test_a_refused_connection_is_told_in_plain_words() -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(ConnectionRefused) as refused:
        await penstock.connect(address, connect_timeout_s=0.5).open()
    assert str(refused.value) == f"no connection to {address}: nothing listens there"


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        (
            "failed to connect to all addresses; last error: UNKNOWN: x: Connection refused",
            "nothing listens there",
        ),
        (
            "errors resolving x:1: [hostname lookup error: Domain name not found]",
            "there is no host of that name",
        ),
        ("failed to connect to all addresses; last error: whatever", "no connection could be made"),
        ("the server is about to stop", "the server is about to stop"),
    ],
)
def test_texts_of_grpc_are_not_quoted(text: str, plain: str) -> None:
    assert str(error_from_status("UNAVAILABLE", text)) == plain
