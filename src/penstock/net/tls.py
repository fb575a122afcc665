"""TLS certificates of all doors, reloaded when their files are renewed.

A connection keeps the context it began with. A reload replaces the context for new connections; open ones are
not affected, and session tickets of the old context are not valid for the new one.
"""

import os
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import structlog
from msgspec import Meta, Struct

from penstock.errors import InvalidConfig

log = structlog.get_logger("penstock.tls")

_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_MODES = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_OPTIONS = ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
_MISMATCHES = {"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED"}

Mark = tuple[int, int, int] | None
"""Identity of a file's contents: time, size and inode; None if it cannot be read."""


class TlsSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """TLS, the same for every door."""

    certificate_file: str | None = None
    """PEM file with the server's certificate and those between it and its authority; opens the TLS ports."""
    key_file: str | None = None
    """PEM file with the certificate's private key, unencrypted; unset means it is in the certificate file."""
    ca_file: str | None = None
    """PEM file with the authorities whose client certificates are accepted."""
    client_certificates: Literal["none", "optional", "required"] = "none"
    """Client certificates: not requested, optional or required."""
    name_as_user: bool = False
    """Take the common name of a client certificate as the user name."""
    minimum_version: Literal["1.2", "1.3"] = "1.2"
    """Oldest version of TLS."""
    check_interval_s: Annotated[float, Meta(ge=0)] = 5.0
    """Interval at which changed files are reloaded; 0 means only on SIGHUP."""


class Certificates:
    """The TLS contexts for new connections, made of the files that the settings name."""

    context: ssl.SSLContext
    """For protocols without ALPN."""
    h2_context: ssl.SSLContext
    """For HTTP/2: it offers `h2` by ALPN, which most clients insist on."""

    def __init__(self, settings: TlsSettings) -> None:
        """Read the files.

        Raises:
            InvalidConfig: a file cannot be read or used, or settings contradict each other.
        """
        self.prepare(settings)()

    @classmethod
    def load(cls, settings: TlsSettings) -> "Certificates | None":
        """Read the files; None if TLS is not configured.

        Raises:
            InvalidConfig: a file cannot be read or used, or settings contradict each other.
        """
        is_wanted = settings.client_certificates != "none" or settings.name_as_user or _files(settings)
        return cls(settings) if is_wanted else None

    def reload(self) -> None:
        """Read all files again, for new connections; after an error nothing changes.

        Raises:
            InvalidConfig: a file cannot be read or used; the text names its setting.
        """
        # Recorded before the files are read: a change in between is seen the next time.
        self._marks = _look_at(self.settings)
        self.prepare(self.settings)()

    def prepare(self, settings: TlsSettings) -> Callable[[], None]:
        """Read the files of some settings; calling the returned function applies them and cannot fail.

        Raises:
            InvalidConfig: a file cannot be read or used, or settings contradict each other.
        """
        _check(settings)
        marks, context, h2_context = _look_at(settings), _build(settings), _build(settings, ("h2",))
        assert settings.certificate_file is not None
        objection = _objection(context, settings.certificate_file)

        def take() -> None:
            self.settings, self._marks = settings, marks
            self.context, self.h2_context = context, h2_context
            _warn_of_objection(objection, settings)

        return take

    def reload_if_changed(self) -> bool:
        """Read the files again if one has changed since the last attempt; return True if one had.

        Raises:
            InvalidConfig: as `reload` does, but once for each change.
        """
        if _look_at(self.settings) == self._marks:
            return False
        self.reload()
        return True


def names_users(certificates: Certificates | None) -> bool:
    """True if the common name of a client certificate is the user name."""
    return certificates is not None and certificates.settings.name_as_user


def common_name(certificate: Mapping[str, Any] | None) -> str | None:
    """Return the common name of a certificate as `getpeercert` returns it; None unless there is exactly
    one."""
    subject = (certificate or {}).get("subject", ())
    names = [value for part in subject for key, value in part if key == "commonName"]
    return names[0] if len(names) == 1 and names[0].isprintable() else None


def words_of(error: ssl.SSLError) -> str:
    """Return OpenSSL's reason as text."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return (error.reason or "unknown reason").replace("_", " ").lower()


# Settings and files


def _check(settings: TlsSettings) -> None:
    """Refuse settings that contradict each other, above all about client certificates."""
    wanted = settings.client_certificates
    if not settings.certificate_file:
        raise InvalidConfig("tls.certificate_file: is not set, and other settings in tls need it")
    if wanted != "none" and not settings.ca_file:
        raise InvalidConfig(f"tls.ca_file: is not set, and tls.client_certificates is {wanted}")
    if wanted == "none" and (settings.ca_file or settings.name_as_user):
        name = "ca_file" if settings.ca_file else "name_as_user"
        raise InvalidConfig(f"tls.{name}: is set, but tls.client_certificates is none")


def _files(settings: TlsSettings) -> dict[str, str]:
    """Return the configured files by setting."""
    named = {
        "certificate_file": settings.certificate_file,
        "key_file": settings.key_file,
        "ca_file": settings.ca_file,
    }
    return {name: file for name, file in named.items() if file}


def _look_at(settings: TlsSettings) -> list[Mark]:
    marks: list[Mark] = []
    for file in _files(settings).values():
        try:
            status = os.stat(file)  # noqa: PTH116 - called every few seconds, so it makes no Path
        except OSError:
            marks.append(None)
        else:
            marks.append((status.st_mtime_ns, status.st_size, status.st_ino))
    return marks


# Building a context


def _build(settings: TlsSettings, protocols: Sequence[str] = ()) -> ssl.SSLContext:
    for name, file in _files(settings).items():
        _check_readable(name, file)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[settings.minimum_version]
    context.options |= _OPTIONS
    assert settings.certificate_file is not None
    _load_certificate(context, settings.certificate_file, settings.key_file)
    if settings.ca_file:
        _load_authorities(context, "ca_file", settings.ca_file)
    context.verify_mode = _MODES[settings.client_certificates]
    if protocols:
        context.set_alpn_protocols(list(protocols))
    return context


def _warn_of_objection(objection: str | None, settings: TlsSettings) -> None:
    if objection is not None:
        log.warning("clients will refuse the certificate", file=settings.certificate_file, reason=objection)


def _check_readable(name: str, file: str) -> None:
    """Name the missing file: OpenSSL only reports that one is missing."""
    try:
        Path(file).read_bytes()
    except OSError as error:
        raise InvalidConfig(f"tls.{name}: {file} cannot be read: {error.strerror}") from None


def _load_certificate(context: ssl.SSLContext, certificate_file: str, key_file: str | None) -> None:
    _load_authorities(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), "certificate_file", certificate_file)
    holder = f"tls.key_file: {key_file}" if key_file else f"tls.certificate_file: {certificate_file}"

    def refuse() -> str:  # OpenSSL would ask at the terminal
        raise InvalidConfig(f"{holder} holds an encrypted key; use one without a passphrase")

    try:
        context.load_cert_chain(certificate_file, key_file, refuse)
    except ssl.SSLError as error:
        if error.reason in _MISMATCHES:
            fault = f"holds a key that is not that of the certificate in {certificate_file}"
        elif error.reason is None or error.library == "PEM":
            fault = "holds no private key in PEM form"
        else:
            fault = f"cannot be used: {words_of(error)}"
        raise InvalidConfig(f"{holder} {fault}") from None


def _load_authorities(context: ssl.SSLContext, name: str, file: str) -> None:
    try:
        context.load_verify_locations(file)
    except ssl.SSLError:
        raise InvalidConfig(f"tls.{name}: {file} holds no certificate in PEM form") from None


def _objection(context: ssl.SSLContext, certificate_file: str) -> str | None:
    """Return why clients would refuse this certificate even if they trust it, for example its expiry.

    The library does not expose the dates of a certificate, so a client handshake is made in memory.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(certificate_file)
    from_client, from_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(from_server, from_client)
    responding = context.wrap_bio(from_client, from_server, server_side=True)
    try:
        for side in (asking, responding, asking):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    except ssl.SSLError as error:
        return words_of(error)
    return None
