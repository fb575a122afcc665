"""PROXY protocol, version 2: the header in which a proxy reports the address of its client.

A proxied connection begins with 16 bytes of fixed form, which announce the length of the rest with the
addresses. Only the binary form is supported; the text form of version 1 has no length. Further fields
(TLVs) are skipped.
"""

from ipaddress import IPv4Address, IPv6Address

from penstock.errors import WireError

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
HEADER_BYTES = 16
MAX_BYTES = 4096
"""Longest header, with all that follows its first 16 bytes."""

_VERSION = 2
_LOCAL, _PROXY = 0, 1
_UNSPECIFIED, _TCP_OVER_IPV4, _TCP_OVER_IPV6, _UNIX_STREAM = 0x00, 0x11, 0x21, 0x31
_ADDRESS_BYTES = {_UNSPECIFIED: 0, _TCP_OVER_IPV4: 12, _TCP_OVER_IPV6: 36, _UNIX_STREAM: 216}


class BadProxyHeader(WireError):
    """Not a PROXY header of version 2."""


def check_start(data: bytes) -> None:
    """Check the first bytes of a header, so that other input is refused early.

    Raises:
        BadProxyHeader: they are something else.
    """
    if not SIGNATURE.startswith(data[: len(SIGNATURE)]):
        is_text = data.startswith(b"PROXY")
        raise BadProxyHeader("PROXY header of version 1" if is_text else "no PROXY header")


def announced(header: bytes) -> int:
    """Return how many bytes follow the first 16.

    Raises:
        BadProxyHeader: the 16 are something else, or announce too many.
    """
    check_start(header)
    if len(header) < HEADER_BYTES:
        raise BadProxyHeader("PROXY header cut short")
    version, command = header[12] >> 4, header[12] & 0x0F
    if version != _VERSION:
        raise BadProxyHeader(f"PROXY header of version {version}")
    if command not in (_LOCAL, _PROXY):
        raise BadProxyHeader(f"PROXY header with command {command}")
    size = int.from_bytes(header[14:16], "big")
    if HEADER_BYTES + size > MAX_BYTES:
        raise BadProxyHeader(f"PROXY header of {HEADER_BYTES + size} bytes, {MAX_BYTES} are allowed")
    return size


def parse(data: bytes) -> tuple[str, int] | None:
    """Return host and port of a whole header; None means those of the socket itself.

    That is so for connections of the proxy itself, such as health checks, and where the proxy has no internet
    address.

    Raises:
        BadProxyHeader: the header is malformed, or not about a TCP connection.
    """
    rest = data[HEADER_BYTES : HEADER_BYTES + announced(data[:HEADER_BYTES])]
    if data[12] & 0x0F == _LOCAL:
        return None  # whatever follows has to be ignored, the transport too
    transport = data[13]
    if transport not in _ADDRESS_BYTES:
        raise BadProxyHeader(f"PROXY header for transport {transport:#04x}")
    if len(rest) < _ADDRESS_BYTES[transport]:
        raise BadProxyHeader("PROXY header without its addresses")
    if transport == _TCP_OVER_IPV4:
        return str(IPv4Address(rest[:4])), int.from_bytes(rest[8:10], "big")
    if transport == _TCP_OVER_IPV6:
        return _plain(IPv6Address(rest[:16])), int.from_bytes(rest[32:34], "big")
    return None


def _plain(address: IPv6Address) -> str:
    """Normalize an address: IPv4 in IPv6 form becomes IPv4."""
    return str(address.ipv4_mapped or address)
