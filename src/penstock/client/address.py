"""Server addresses as people write them: `http://host:8080/path`, `host:5672`, `[::1]:5672`."""

from typing import NamedTuple
from urllib.parse import urlsplit

GRPC_PORT = 5672

_PORTS = {"http": 80, "https": 443, "grpc": GRPC_PORT}
_EXAMPLES = {
    "http": "http://host:8080 or https://host:8443",
    "grpc": f"host:{GRPC_PORT} or [::1]:{GRPC_PORT}",
}


class Address(NamedTuple):
    """Parts of an address."""

    scheme: str
    host: str
    port: int
    path: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.netloc}{self.path}"

    @property
    def netloc(self) -> str:
        """`host:port`, with brackets around an IPv6 address."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @classmethod
    def parse(cls, text: str, schemes: tuple[str, ...] = ("http", "https")) -> "Address":
        """Parse `http://host:8080`, `https://host/below` or `host:8080`.

        Args:
            schemes: the allowed ones; the first is that of an address without a scheme.

        Raises:
            ValueError: this is not a valid address, or it contains a user or a password.
        """
        invalid = ValueError(f"{text!r} is not a valid address; write {_EXAMPLES[schemes[0]]}")
        try:
            parts = urlsplit(text if "://" in text else f"{schemes[0]}://{text}")
            port = parts.port
        except ValueError:
            raise invalid from None
        if parts.username is not None or parts.password is not None:
            raise ValueError("an address contains no user and password; pass them as arguments")
        if parts.scheme not in schemes or not parts.hostname or parts.query or parts.fragment:
            raise invalid
        if port == 0 or parts.netloc.endswith(":"):
            raise invalid
        return cls(parts.scheme, parts.hostname, port or _PORTS[parts.scheme], parts.path.rstrip("/"))


def grpc_target(address: str) -> str:
    """The target of a gRPC channel, from `host`, `host:port` or `[::1]:port`.

    Raises:
        ValueError: this is not a valid address.
    """
    parsed = Address.parse(address, ("grpc",))
    if "/" in address:
        raise ValueError(f"{address!r} is not a valid address; write {_EXAMPLES['grpc']}")
    return parsed.netloc
