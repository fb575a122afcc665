"""Origin and Host checks for HTTP and WebSocket, and the headers of CORS.

A web page can make its user's browser send requests anywhere, also to servers that only the user can reach.
So `Host` must be a name of this server: with DNS rebinding a page has an origin that agrees with its host.
And a request that changes something, or opens a stream, must have an `Origin` of this host and port, or a
listed one: another server on the same machine is another site. Programs other than browsers send no `Origin`,
and pass.

Names that nobody can register are names of this server too, if it listens beyond loopback: `broker` in a
container network, `broker.local`, `broker.internal`. Rebinding needs a name that the attacker's DNS serves to
the victim; these are served by the victim's own network, and an attacker there reaches such a server
without a browser. On loopback they would let that network in, so there only `localhost` is meant.
"""

import re
from ipaddress import ip_address

ANY = "*"
HOST = re.compile(r"(?P<name>\[[^]\s]+\]|[^][@/:?#\s]+)(?::(?P<port>\d{1,5}))?", re.ASCII)
ORIGIN = re.compile(rf"(?P<scheme>[a-z][a-z0-9+.-]*)://{HOST.pattern}", re.IGNORECASE | re.ASCII)
USUAL_PORTS = {"http": 80, "https": 443}
PRIVATE_NAME = re.compile(r"[a-z0-9_-]+|.+\.(?:local|internal|home\.arpa)", re.ASCII)
"""Single labels and reserved domains (RFC 6762, RFC 8375, `.internal` by ICANN)."""
LOCALHOST = "localhost"
ALLOWED_METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE"
PREFLIGHT_S = 600
"""Time that a browser may cache the response to a preflight request."""


class Origins:
    """The host names of one server, and the origins that may use it.

    Args:
        host: the address or name that the server listens on.
        hosts: further names; `*` for any.
        pages: further origins that may send requests; `*` for any.
        readers: origins that may also read responses (CORS); `*` for any.
    """

    def __init__(
        self,
        host: str,
        hosts: tuple[str, ...] = (),
        pages: tuple[str, ...] = (),
        readers: tuple[str, ...] = (),
    ) -> None:
        self._host = host
        self._takes_private_names = not is_loopback(host)
        self.configure(hosts, pages, readers)

    def configure(self, hosts: tuple[str, ...], pages: tuple[str, ...], readers: tuple[str, ...]) -> None:
        """Apply other names and origins from now on."""
        self._takes_any_host = ANY in hosts
        self._names = {LOCALHOST, host_name(self._host), *map(host_name, hosts)} - {""}
        # An empty entry is neither an origin nor a name.
        self._readers = {plain(each) for each in readers} - {""}
        self._pages = ({plain(each) for each in pages} - {""}) | self._readers

    def is_ours(self, host: str) -> bool:
        """True if a `Host` header names this server."""
        name = host_name(host)
        if not name:
            return False
        if name in self._names or self._takes_any_host or is_address(name):
            return True
        is_private = self._takes_private_names and PRIVATE_NAME.fullmatch(name) is not None
        return is_private or name.endswith(f".{LOCALHOST}")  # browsers resolve it themselves (RFC 6761)

    def is_welcome(self, origin: str, host: str) -> bool:
        """True if a page of this origin may send requests to the server under this name."""
        if is_same_place(origin, host):
            return True
        pages = self._pages
        return ANY in pages or plain(origin) in pages or name_in(ORIGIN, origin) in pages

    def may_read(self, origin: str) -> bool:
        """True if a page of this origin may read responses."""
        readers = self._readers
        if not readers:
            return False
        return ANY in readers or plain(origin) in readers or name_in(ORIGIN, origin) in readers


def cors_headers(origin: str) -> list[tuple[str, str]]:
    """Headers that let a page of this origin read the response."""
    return [
        ("access-control-allow-origin", origin),
        ("access-control-expose-headers", ANY),
        ("vary", "origin"),
    ]


def preflight_headers(origin: str, wanted: str | None) -> list[tuple[str, str]]:
    """Headers that let a page of this origin send a request with these headers."""
    headers = [
        ("access-control-allow-origin", origin),
        ("access-control-allow-methods", ALLOWED_METHODS),
        ("access-control-max-age", str(PREFLIGHT_S)),
        ("vary", "origin, access-control-request-headers"),
    ]
    return headers + ([("access-control-allow-headers", wanted)] if wanted else [])


def is_same_place(origin: str, host: str) -> bool:
    """True if an origin has the name and the port of a `Host` header.

    Default ports may be left out. The scheme of the request is not known, since a proxy may have terminated
    TLS; so the default port of one scheme stands for that of the other.
    """
    page, place = ORIGIN.fullmatch(origin), HOST.fullmatch(host)
    if page is None or place is None or plain(page["name"]) != plain(place["name"]):
        return False
    usual = USUAL_PORTS.get(page["scheme"].lower())
    if usual is None:
        return False
    theirs, ours = (int(found["port"] or usual) for found in (page, place))
    return theirs == ours or (theirs == usual and ours in USUAL_PORTS.values())


def host_name(value: str) -> str:
    """The name or address in a `Host` header, without its port; empty if it is not well formed."""
    return name_in(HOST, value)


def name_in(pattern: re.Pattern[str], value: str) -> str:
    """The host name or address, without scheme and port; empty if it is not well formed."""
    found = pattern.fullmatch(value)
    return plain(found["name"]) if found else ""


def plain(name: str) -> str:
    """Normalize a name or origin for comparison."""
    return name.lower().rstrip("/.")


def is_loopback(host: str) -> bool:
    """True if only this machine can reach a server that listens on an address or name."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == LOCALHOST


def is_address(name: str) -> bool:
    """True if a name is an IP address, which DNS cannot redirect."""
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
