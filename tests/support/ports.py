"""Ports for tests that have to know one before anybody listens there."""

import socket

HOST = "127.0.0.1"
_kept: list[socket.socket] = []


def free_port() -> int:
    """A port that nobody listens at and that nobody else is given, as long as the tests run.

    It stays bound: who connects is refused, but a server that reuses addresses, as all do, may listen there.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind((HOST, 0))
    _kept.append(holder)
    return int(holder.getsockname()[1])
