"""TLS settings of all clients: trusted authorities, client certificate, server name."""

import os
import ssl
from typing import Any, TypeAlias

from msgspec import Struct

File: TypeAlias = str | os.PathLike[str]


class Tls(Struct, frozen=True, kw_only=True):
    """TLS settings; all files are PEM."""

    ca_file: File | None = None
    """Trusted authorities; default: those of gRPC, and those of the system over HTTP and MQTT."""
    certificate_file: File | None = None
    """Client certificate."""
    key_file: File | None = None
    """Private key of the client certificate."""
    server_name: str | None = None
    """Name expected in the server's certificate; default: the host of the address."""

    def ssl_context(self) -> ssl.SSLContext:
        """The same settings as a context of the standard library."""
        context = _NamedContext(ssl.PROTOCOL_TLS_CLIENT)
        context.server_name = self.server_name
        if self.ca_file is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(self.ca_file)
        if self.certificate_file is not None:
            context.load_cert_chain(self.certificate_file, self.key_file)
        return context


TlsOption: TypeAlias = Tls | File | bool | None
"""Argument of a client: settings, a file with trusted authorities, True for the default ones, or no TLS."""


def make_tls(option: TlsOption) -> Tls | None:
    """The settings that an argument means; None for no TLS."""
    if option is None or option is False or option == "":
        return None
    if isinstance(option, Tls):
        return option
    return Tls(ca_file=None if option is True else option)


def make_ssl_context(option: ssl.SSLContext | TlsOption) -> ssl.SSLContext | None:
    """The context that an argument means; None for no TLS."""
    if isinstance(option, ssl.SSLContext):
        return option
    tls = make_tls(option)
    return None if tls is None else tls.ssl_context()


class _NamedContext(ssl.SSLContext):
    """Client context that expects a fixed server name, whatever name the connection passes."""

    server_name: str | None = None

    def wrap_socket(self, *args: Any, **options: Any) -> ssl.SSLSocket:
        return super().wrap_socket(*args, **self._renamed(options))

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        return super().wrap_bio(*args, **self._renamed(options))

    def _renamed(self, options: dict[str, Any]) -> dict[str, Any]:
        return options if self.server_name is None else {**options, "server_hostname": self.server_name}
