"""The dashboard as a child of a server: `python -m penstock.dashboard`.

What to show comes as one line of JSON on standard input, so that the password is on no command line, and the
socket is inherited. When standard input ends, whoever started this has gone, and the dashboard ends too.
"""

import os
import signal
import socket
import sys
from threading import Thread

import msgspec

from penstock.dashboard.source import Source


class Order(msgspec.Struct):
    """What the parent wants."""

    listener: int
    """The number of the inherited socket."""
    address: str
    user: str | None = None
    password: str | None = None


def main() -> None:
    """Serve what the parent asks for, as long as it is there."""
    from penstock.dashboard.server import serve  # noqa: PLC0415 - takes a while

    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=Order)
    Thread(target=_watch, args=(sys.stdin.fileno(),), daemon=True).start()
    source = Source(order.address, order.user, order.password)
    serve(source, socket.socket(fileno=order.listener))


def _watch(parent: int) -> None:
    while os.read(parent, 1):  # not through the buffered reader: a thread that waits there spoils the exit
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
