"""Where a server speaks HTTP, as people write it."""

from typing import NamedTuple
from urllib.parse import urlsplit

PORTS = {"http": 80, "https": 443}


class Address(NamedTuple):
    """Where a server is, taken apart."""

    scheme: str
    host: str
    port: int
    path: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Read `http://host:8080`, `https://host/below` or `host:8080`."""
        parts = urlsplit(text if "://" in text else f"http://{text}")
        if parts.scheme not in PORTS or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"{text!r} is no address; write http://host:8080 or https://host:8443")
        if parts.username is not None or parts.password is not None:
            raise ValueError("user and password do not belong into the address; give them by themselves")
        return cls(parts.scheme, parts.hostname, parts.port or PORTS[parts.scheme], parts.path.rstrip("/"))
