"""Entry point of a dashboard that a server starts as its child: `python -m penstock.dashboard`.

Its parameters arrive as one line of JSON on standard input, so that the password is on no command line. The
listening socket is inherited. When standard input closes, the parent has exited and the dashboard exits too.
"""

import os
import signal
import socket
import sys
from threading import Thread

import msgspec

from penstock.dashboard.poller import Source


class Order(msgspec.Struct):
    """Parameters from the parent process."""

    listener: int
    """File descriptor of the inherited socket."""
    address: str
    user: str | None = None
    password: str | None = None


def main() -> None:
    """Serve the dashboard until the parent exits."""
    from penstock.dashboard.server import serve  # noqa: PLC0415 - takes a while

    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=Order)
    Thread(target=_watch, args=(sys.stdin.fileno(),), daemon=True).start()
    source = Source(order.address, order.user, order.password)
    serve(source, socket.socket(fileno=order.listener))


def _watch(parent: int) -> None:
    while os.read(parent, 1):  # unbuffered: a thread blocked in a buffered reader breaks the exit
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
