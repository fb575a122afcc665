"""The socket that the dashboard listens on; made before anything that takes long to load."""

import errno
import socket

from penstock.errors import InvalidConfig

BACKLOG = 128
_ADVICE = {
    errno.EADDRINUSE: "something else listens there already; {flag} chooses another port, 0 takes a free one",
    errno.EACCES: "ports below 1024 are for root; {flag} chooses another one",
    errno.EADDRNOTAVAIL: "this machine has no such address",
}


def listen(host: str, port: int, flag: str) -> socket.socket:
    """A socket that listens; port 0 takes a free one.

    Args:
        flag: how to ask for another port, for the complaint.

    Raises:
        InvalidConfig: it cannot, saying why and what to try.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, address = found[0][0], found[0][4]
        return socket.create_server((str(address[0]), port), family=family, backlog=BACKLOG)
    except socket.gaierror:
        raise InvalidConfig(f"the dashboard cannot listen on {host}: there is no host of that name") from None
    except OSError as error:
        why = _ADVICE.get(error.errno or 0, str(error.strerror)).format(flag=flag)
        raise InvalidConfig(f"the dashboard cannot listen on {host}:{port}: {why}") from None


def address_of(listener: socket.socket) -> str:
    """Where a browser on this machine finds it."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback(listener: socket.socket) -> bool:
    """Whether only this machine can reach it."""
    host = str(listener.getsockname()[0])
    return host == "::1" or host.startswith("127.")
