"""gRPC over TLS: what is agreed on in the handshake, and who comes with a certificate."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from structlog.testing import capture_logs

from penstock.core.access.file_access import FileAccess
from penstock.doors.sidecar.settings import SidecarSettings
from penstock.errors import InvalidConfig
from penstock.net.tls import Certificates, TlsSettings
from tests.doors.sidecar.transport.conftest import StartServing
from tests.doors.sidecar.transport.serving import SAY, TIMEOUT_S, WHO, Serving, unary_unary
from tests.support.certificates import Authority, Files


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest.fixture
def certificates(authority: Authority, tmp_path: Path) -> Certificates:
    """Those of a server that anybody may come to."""
    return Certificates(TlsSettings(certificate_file=authority.issue(tmp_path, "server").both))


@pytest.fixture
async def serving(start: StartServing, certificates: Certificates) -> Serving:
    return await start(certificates=certificates, port=0, tls_port=0)


async def channel_to(
    serving: Serving, authority: Authority, folder: Path, mine: Files | None = None
) -> AsyncIterator[grpc.aio.Channel]:
    """A client that trusts an authority, and perhaps has a certificate itself."""
    trusted = Path(authority.write(folder / "ca.crt")).read_bytes()
    parts: dict[str, Any] = {}
    if mine is not None:
        parts = {
            "private_key": Path(mine.key).read_bytes(),
            "certificate_chain": Path(mine.certificate).read_bytes(),
        }
    credentials = grpc.ssl_channel_credentials(trusted, **parts)
    async with grpc.aio.secure_channel(f"127.0.0.1:{serving.port_of('grpcs')}", credentials) as channel:
        yield channel


async def test_a_client_that_trusts_the_server_is_answered(
    serving: Serving, authority: Authority, tmp_path: Path
) -> None:
    assert [address.split(":")[0] for address in serving.door.addresses()] == ["grpc", "grpcs"]
    async for channel in channel_to(serving, authority, tmp_path):
        say = unary_unary(channel, SAY)
        answers = await asyncio.gather(*(say(b"%d" % number, timeout=TIMEOUT_S) for number in range(50)))
        assert answers == [b"%d" % number for number in range(50)]
        large = bytes(3_000_000)
        assert await say(large, timeout=TIMEOUT_S) == large


async def test_a_stranger_to_the_authority_is_told_in_the_handshake(serving: Serving, tmp_path: Path) -> None:
    with capture_logs() as logged:
        async for channel in channel_to(serving, Authority(), tmp_path):
            with pytest.raises(grpc.aio.AioRpcError) as refusal:
                await unary_unary(channel, SAY)(b"", timeout=TIMEOUT_S)
            assert refusal.value.code() is grpc.StatusCode.UNAVAILABLE
    assert {line["event"] for line in logged} == {"tls handshake failed"}


@pytest.mark.parametrize(
    ("offered", "chosen"), [(["h2"], "h2"), (["http/1.1", "h2"], "h2"), (["http/1.1"], None), ([], None)]
)
async def test_the_handshake_agrees_on_http_2(
    serving: Serving, authority: Authority, offered: list[str], chosen: str | None
) -> None:
    context = authority.client_context()
    if offered:
        context.set_alpn_protocols(offered)
    assert await agreed(serving.port_of("grpcs"), context) == chosen


async def test_other_ports_agree_on_nothing(certificates: Certificates) -> None:
    client = ssl.create_default_context()
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    client.set_alpn_protocols(["h2", "http/1.1"])
    one, other = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(one, other)
    answering = certificates.context.wrap_bio(other, one, server_side=True)
    for side in (asking, answering, asking, answering):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    assert asking.selected_alpn_protocol() is None


async def test_renewed_certificates_count_for_new_connections(
    serving: Serving, certificates: Certificates, authority: Authority, tmp_path: Path
) -> None:
    other = Authority()
    renewed = other.issue(tmp_path, "renewed")
    Path(certificates.settings.certificate_file or "").write_bytes(Path(renewed.both).read_bytes())
    certificates.reload()
    async for channel in channel_to(serving, other, tmp_path):
        assert await unary_unary(channel, SAY)(b"x", timeout=TIMEOUT_S) == b"x"


async def test_a_certificate_names_who_calls(
    start: StartServing, authority: Authority, tmp_path: Path
) -> None:
    certificates = Certificates(
        TlsSettings(
            certificate_file=authority.issue(tmp_path, "server").both,
            ca_file=authority.write(tmp_path / "clients.crt"),
            client_certificates="required",
            name_as_user=True,
        )
    )
    access = FileAccess.load(None, None, False, has_certificates=True)
    serving = await start(certificates=certificates, access=access, port=None, tls_port=0)
    ann = authority.issue(tmp_path, "ann", common_name="ann")
    async for channel in channel_to(serving, authority, tmp_path, ann):
        assert await unary_unary(channel, WHO)(b"", timeout=TIMEOUT_S) == b"ann"
    async for channel in channel_to(serving, authority, tmp_path):
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await unary_unary(channel, WHO)(b"", timeout=TIMEOUT_S)
        assert refusal.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_tls_port_without_a_certificate_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"sidecar\.tls_port: tls\.certificate_file is not set"):
        Serving({"tls_port": 0})
    assert SidecarSettings().tls_port is None


async def agreed(port: int, context: ssl.SSLContext) -> str | None:
    """The protocol that a handshake has agreed on."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    chosen: str | None = writer.get_extra_info("ssl_object").selected_alpn_protocol()
    writer.transport.abort()
    return chosen
