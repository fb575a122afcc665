"""Authorities and certificates for tests, made on the spot."""

import ssl
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import trustme

HOST = "127.0.0.1"
LONG_AGO = datetime(2001, 1, 1)


class Files(NamedTuple):
    """Where a certificate was written: by itself, with its key, and the key by itself."""

    certificate: str
    both: str
    key: str


class Authority:
    """Somebody who issues certificates, for servers and clients alike."""

    def __init__(self) -> None:
        self._ca = trustme.CA()

    def write(self, file: Path) -> str:
        """Write its own certificate, which says whom to trust."""
        self._ca.cert_pem.write_to_path(file)
        return str(file)

    def issue(
        self, folder: Path, name: str, *, is_expired: bool = False, common_name: str | None = None
    ) -> Files:
        """A certificate for our own address, in files that begin with a name."""
        dates: dict[str, Any] = (
            {"not_before": LONG_AGO, "not_after": LONG_AGO + timedelta(days=1)} if is_expired else {}
        )
        issued = self._ca.issue_cert(HOST, common_name=common_name, **dates)
        files = Files(*(str(folder / f"{name}{ending}") for ending in (".crt", ".pem", ".key")))
        Path(files.certificate).write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
        issued.private_key_and_cert_chain_pem.write_to_path(files.both)
        issued.private_key_pem.write_to_path(files.key)
        return files

    def client_context(self, certificate: Files | None = None) -> ssl.SSLContext:
        """What a client uses that trusts this authority, and perhaps has a certificate itself."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._ca.configure_trust(context)
        if certificate is not None:
            context.load_cert_chain(certificate.both)
        return context
