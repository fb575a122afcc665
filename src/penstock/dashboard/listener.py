"""Listening socket of the dashboard, opened before the slow imports.

A server that starts a dashboard as its child imports this module, so it must not load Streamlit.
"""

import errno
import socket

from penstock.errors import InvalidConfig

BACKLOG = 128
_ADVICE = {
    errno.EADDRINUSE: "the port is already in use; set another with {flag}, or 0 for a free one",
    errno.EACCES: "ports below 1024 need root; set another with {flag}",
    errno.EADDRNOTAVAIL: "this machine has no such address",
}


def listen(host: str, port: int, flag: str) -> socket.socket:
    """Open the listening socket; port 0 picks a free one.

    Args:
        flag: the flag that sets the port, for the error text.

    Raises:
        InvalidConfig: the address cannot be used; the text says why and what to try.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, address = found[0][0], found[0][4]
        return socket.create_server((str(address[0]), port), family=family, backlog=BACKLOG)
    except socket.gaierror:
        raise InvalidConfig(f"the dashboard cannot listen on {host}: unknown host") from None
    except OSError as error:
        why = _ADVICE.get(error.errno or 0, str(error.strerror)).format(flag=flag)
        raise InvalidConfig(f"the dashboard cannot listen on {host}:{port}: {why}") from None


def address_of(listener: socket.socket) -> str:
    """URL of the dashboard for a browser on this machine."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - looked up, not bound
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback(listener: socket.socket) -> bool:
    """True if only this machine can reach the socket."""
    host = str(listener.getsockname()[0])
    return host == "::1" or host.startswith("127.")
