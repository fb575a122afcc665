"""Certificates: what the settings and files must be, what a context then does, and how files are renewed."""

import os
import shutil
import ssl
import warnings
from pathlib import Path
from typing import Any, Literal

import pytest
from cryptography.hazmat.primitives import serialization
from structlog.testing import capture_logs

from penstock.errors import InvalidConfig
from penstock.net.tls import Certificates, TlsSettings, common_name
from tests.support.certificates import HOST, Authority, Files

Wanted = Literal["optional", "required"]


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def stranger() -> Authority:
    return Authority()


@pytest.fixture
def server(authority: Authority, tmp_path: Path) -> Files:
    return authority.issue(tmp_path, "server")


def shake(
    certificates: Certificates, client: ssl.SSLContext, session: ssl.SSLSession | None = None
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends of a connection in memory, the server's first, after the handshake."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = certificates.context.wrap_bio(to_server, to_client, server_side=True)
    theirs = client.wrap_bio(to_client, to_server, server_hostname=HOST, session=session)
    for side in (theirs, ours, theirs, ours, theirs):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return ours, theirs


def serial_number(certificates: Certificates, authority: Authority) -> str:
    _, theirs = shake(certificates, authority.client_context())
    certificate = theirs.getpeercert()
    assert certificate is not None
    return str(certificate["serialNumber"])


# Settings and files


def test_without_settings_there_is_no_encryption() -> None:
    assert Certificates.load(TlsSettings()) is None


def test_key_may_stand_in_the_certificate_file_or_in_one_of_its_own(
    authority: Authority, server: Files
) -> None:
    together = Certificates.load(TlsSettings(certificate_file=server.both))
    apart = Certificates.load(TlsSettings(certificate_file=server.certificate, key_file=server.key))
    assert together is not None and apart is not None
    assert serial_number(together, authority) == serial_number(apart, authority)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"key_file": "key.pem"}, "tls.certificate_file: is not set"),
        ({"client_certificates": "required"}, "tls.certificate_file: is not set"),
        ({"name_as_user": True}, "tls.certificate_file: is not set"),
        ({"certificate_file": "", "key_file": "key.pem"}, "tls.certificate_file: is not set"),
        ({"certificate_file": "?", "client_certificates": "required"}, "tls.ca_file: is not set"),
        ({"certificate_file": "?", "client_certificates": "optional"}, "tls.ca_file: is not set"),
        (
            {"certificate_file": "?", "ca_file": "?"},
            "tls.ca_file: is set, but tls.client_certificates is none",
        ),
        ({"certificate_file": "?", "name_as_user": True}, "tls.name_as_user: is set, but"),
    ],
)
def test_settings_that_leave_open_what_was_meant_are_refused(
    settings: dict[str, Any], complaint: str, server: Files
) -> None:
    given: dict[str, Any] = {name: server.both if value == "?" else value for name, value in settings.items()}
    with pytest.raises(InvalidConfig) as raised:
        Certificates.load(TlsSettings(**given))
    assert str(raised.value).startswith(complaint)


@pytest.mark.parametrize("name", ["certificate_file", "key_file", "ca_file"])
def test_file_that_is_missing_is_named_with_its_setting(name: str, server: Files, tmp_path: Path) -> None:
    files: dict[str, Any] = {
        "certificate_file": server.certificate,
        "key_file": server.key,
        "ca_file": server.certificate,
    }
    files[name] = missing = str(tmp_path / "missing.pem")
    with pytest.raises(InvalidConfig) as raised:
        Certificates(TlsSettings(client_certificates="required", **files))
    assert str(raised.value) == f"tls.{name}: {missing} cannot be read: No such file or directory"


@pytest.mark.parametrize("name", ["certificate_file", "key_file", "ca_file"])
@pytest.mark.parametrize("content", [b"", b"\xff\x00junk", b"-----BEGIN CERTIFICATE-----\nMIIB\n"])
def test_file_without_what_it_should_hold_is_named_with_its_setting(
    name: str, content: bytes, server: Files, tmp_path: Path
) -> None:
    files: dict[str, Any] = {
        "certificate_file": server.certificate,
        "key_file": server.key,
        "ca_file": server.certificate,
    }
    bad = tmp_path / "bad.pem"
    bad.write_bytes(content)
    files[name] = str(bad)
    with pytest.raises(InvalidConfig, match=f"^tls.{name}: {bad} holds no .+ in PEM form"):
        Certificates(TlsSettings(client_certificates="required", **files))


def test_certificate_file_without_a_key_is_told_so(server: Files) -> None:
    with pytest.raises(InvalidConfig, match=r"^tls.certificate_file: .+ holds no private key"):
        Certificates(TlsSettings(certificate_file=server.certificate))


def test_key_of_another_certificate_is_refused(authority: Authority, server: Files, tmp_path: Path) -> None:
    other = authority.issue(tmp_path, "other")
    with pytest.raises(InvalidConfig, match=rf"^tls.key_file: {other.key} holds a key that is not that of"):
        Certificates(TlsSettings(certificate_file=server.certificate, key_file=other.key))


def test_encrypted_key_is_refused_and_nobody_is_asked(server: Files, tmp_path: Path) -> None:
    key = serialization.load_pem_private_key(Path(server.key).read_bytes(), None)
    locked = tmp_path / "locked.key"
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(InvalidConfig, match=rf"^tls.key_file: {locked} holds an encrypted key"):
        Certificates(TlsSettings(certificate_file=server.certificate, key_file=str(locked)))


def test_expired_certificate_is_used_but_warned_about(authority: Authority, tmp_path: Path) -> None:
    expired = authority.issue(tmp_path, "expired", is_expired=True)
    with capture_logs() as lines:
        certificates = Certificates(TlsSettings(certificate_file=expired.both))
    [line] = lines
    assert (line["log_level"], line["file"]) == ("warning", expired.both)
    assert line["reason"] == "certificate has expired"
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate has expired"):
        shake(certificates, authority.client_context())


def test_good_certificate_is_nothing_to_talk_about(
    server: Files, authority: Authority, tmp_path: Path
) -> None:
    trusted = authority.write(tmp_path / "ca.pem")
    with capture_logs() as lines:
        Certificates(TlsSettings(certificate_file=server.both, minimum_version="1.3"))
        Certificates(
            TlsSettings(certificate_file=server.both, ca_file=trusted, client_certificates="required")
        )
    assert lines == []


# What is spoken


def test_versions_before_the_oldest_are_refused(authority: Authority, server: Files) -> None:
    client = authority.client_context()
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    ours, _ = shake(Certificates(TlsSettings(certificate_file=server.both)), client)
    assert ours.version() == "TLSv1.2"
    modern = Certificates(TlsSettings(certificate_file=server.both, minimum_version="1.3"))
    with pytest.raises(ssl.SSLError, match="UNSUPPORTED_PROTOCOL"):
        shake(modern, client)


def test_tls_1_1_is_never_spoken(authority: Authority, server: Files) -> None:
    certificates = Certificates(TlsSettings(certificate_file=server.both))
    certificates.context.set_ciphers("ALL:@SECLEVEL=0")  # so that nothing but the version is in the way
    client = authority.client_context()
    client.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        client.minimum_version = client.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError, match="UNSUPPORTED_PROTOCOL"):
        shake(certificates, client)


def test_there_is_neither_compression_nor_renegotiation_and_our_ciphers_go_first(server: Files) -> None:
    options = Certificates(TlsSettings(certificate_file=server.both)).context.options
    for option in (ssl.OP_NO_COMPRESSION, ssl.OP_NO_RENEGOTIATION, ssl.OP_CIPHER_SERVER_PREFERENCE):
        assert options & option


# Client certificates


def for_clients(server: Files, ca_file: str, wanted: Wanted) -> Certificates:
    return Certificates(
        TlsSettings(certificate_file=server.both, ca_file=ca_file, client_certificates=wanted)
    )


def test_clients_are_asked_for_a_certificate_only_if_that_is_set(
    authority: Authority, server: Files, tmp_path: Path
) -> None:
    alice = authority.issue(tmp_path, "alice", common_name="alice")
    ca_file = authority.write(tmp_path / "ca.pem")
    with_certificate, without = authority.client_context(alice), authority.client_context()
    unasked, _ = shake(Certificates(TlsSettings(certificate_file=server.both)), with_certificate)
    assert unasked.getpeercert() is None
    wishes: tuple[Wanted, ...] = ("optional", "required")
    for wanted in wishes:
        asked, _ = shake(for_clients(server, ca_file, wanted), with_certificate)
        assert common_name(asked.getpeercert()) == "alice"
    optional, _ = shake(for_clients(server, ca_file, "optional"), without)
    assert optional.getpeercert() is None
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        shake(for_clients(server, ca_file, "required"), without)


@pytest.mark.parametrize("wanted", ["optional", "required"])
def test_certificate_of_another_authority_is_refused(
    wanted: Wanted, authority: Authority, stranger: Authority, server: Files, tmp_path: Path
) -> None:
    mallory = stranger.issue(tmp_path, "mallory", common_name="alice")
    certificates = for_clients(server, authority.write(tmp_path / "ca.pem"), wanted)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(certificates, authority.client_context(mallory))


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        (((("commonName", "pump-7"),),), "pump-7"),
        (((("organizationName", "Works"),), (("commonName", "pump 7"),)), "pump 7"),
        (((("organizationName", "Works"),),), None),
        (((("commonName", "alice"),), (("commonName", "root"),)), None),
        (((("commonName", "alice\0.example"),),), None),
        ((), None),
    ],
)
def test_name_of_a_certificate_is_its_only_common_name(subject: object, name: str | None) -> None:
    assert common_name({"subject": subject}) == name


def test_without_a_certificate_there_is_no_name() -> None:
    assert common_name(None) is None
    assert common_name({}) is None


# Renewal


def replace(old: Files, new: Files) -> None:
    """What a renewal does: the new file takes the old one's place in one step."""
    shutil.copy(new.both, f"{old.both}.new")
    os.replace(f"{old.both}.new", old.both)  # noqa: PTH105


def test_reload_reads_the_files_again_and_leaves_the_old_context_alone(
    authority: Authority, server: Files, tmp_path: Path
) -> None:
    certificates = Certificates(TlsSettings(certificate_file=server.both))
    old, first = certificates.context, serial_number(certificates, authority)
    replace(server, authority.issue(tmp_path, "renewed"))
    assert serial_number(certificates, authority) == first
    certificates.reload()
    assert certificates.context is not old
    assert serial_number(certificates, authority) != first


def test_files_that_changed_are_noticed_and_others_are_not_read(
    authority: Authority, server: Files, tmp_path: Path
) -> None:
    certificates = Certificates(TlsSettings(certificate_file=server.both))
    context, first = certificates.context, serial_number(certificates, authority)
    assert not certificates.reload_if_changed()
    assert certificates.context is context
    replace(server, authority.issue(tmp_path, "renewed"))
    assert certificates.reload_if_changed()
    assert serial_number(certificates, authority) != first
    assert not certificates.reload_if_changed()


def test_change_behind_a_link_is_noticed(authority: Authority, server: Files, tmp_path: Path) -> None:
    renewed = authority.issue(tmp_path, "renewed")
    link = tmp_path / "live.pem"
    link.symlink_to(server.both)
    certificates = Certificates(TlsSettings(certificate_file=str(link)))
    link.unlink()
    link.symlink_to(renewed.both)
    assert certificates.reload_if_changed()


@pytest.mark.parametrize("name", ["key_file", "ca_file"])
def test_every_file_is_looked_at(name: str, authority: Authority, server: Files, tmp_path: Path) -> None:
    files: dict[str, Any] = {"key_file": server.key, "ca_file": authority.write(tmp_path / "ca.pem")}
    certificates = Certificates(
        TlsSettings(certificate_file=server.certificate, client_certificates="required", **files)
    )
    with Path(files[name]).open("ab") as file:
        file.write(b"\n")
    assert certificates.reload_if_changed()
    assert not certificates.reload_if_changed()


def test_broken_file_changes_nothing_and_is_complained_about_once(
    authority: Authority, server: Files, tmp_path: Path
) -> None:
    good = Path(server.both).read_bytes()
    certificates = Certificates(TlsSettings(certificate_file=server.both))
    context = certificates.context
    for break_it in (lambda: Path(server.both).write_bytes(b"half"), lambda: Path(server.both).unlink()):
        break_it()
        with pytest.raises(InvalidConfig, match=r"^tls\.certificate_file: "):
            certificates.reload_if_changed()
        assert not certificates.reload_if_changed()
        with pytest.raises(InvalidConfig):  # who asks for it gets the answer every time
            certificates.reload()
        assert certificates.context is context
    Path(server.both).write_bytes(good)
    assert certificates.reload_if_changed()
    assert certificates.context is not context


def test_authority_that_was_removed_is_no_longer_accepted_and_its_old_session_neither(
    authority: Authority, stranger: Authority, server: Files, tmp_path: Path
) -> None:
    ca_file = tmp_path / "ca.pem"
    certificates = for_clients(server, authority.write(ca_file), "required")
    client = authority.client_context(authority.issue(tmp_path, "alice"))
    client.maximum_version = ssl.TLSVersion.TLSv1_2  # there the session is known once the handshake is done
    _, theirs = shake(certificates, client)
    _, again = shake(certificates, client, theirs.session)
    assert again.session_reused  # without showing the certificate again
    stranger.write(ca_file)
    certificates.reload()
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(certificates, client, theirs.session)
