"""Door: the interface of a protocol front end, and the address of a peer."""

from typing import Protocol

from msgspec import Struct


class Peer(Struct, frozen=True):
    """Address of the other end of a connection, and the name in its certificate."""

    host: str
    port: int
    certificate_name: str | None = None
    """Common name of a verified client certificate."""

    def __str__(self) -> str:
        return address(self.host, self.port)


def address(host: str, port: int) -> str:
    """Format host and port, IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Door(Protocol):
    """Front end of one protocol. `open` listens, `close` stops accepting, `finish` drains."""

    name: str

    async def open(self) -> None:
        """Listen; raises `InvalidConfig` if that fails."""

    async def close(self) -> None: ...

    async def finish(self, timeout: float) -> None: ...

    def addresses(self) -> list[str]:
        """URLs that clients connect to."""
        ...
