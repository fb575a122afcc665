"""What a service manager is told: that the server is ready, reloads, stops, and is alive.

systemd's protocol for `Type=notify`: datagrams of `NAME=value` lines to the socket in `NOTIFY_SOCKET`;
a name that begins with @ is one in Linux's abstract namespace. Where nobody asked, nothing is sent. Signs of
life come from the loop that serves, so that one that is stuck gives none and is started again.
"""

import asyncio
import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress

SOCKET, INTERVAL, PROCESS = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"
SIGNS_PER_INTERVAL = 3
"""Signs of life in the time after which the manager gives up; half of it is what systemd asks for."""


class Notifier:
    """Tells the manager that started us, if there is one, what we are at."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._address = _address_of(environ.get(SOCKET, ""))
        self._watchdog_s = _watchdog_of(environ)
        self._sign: asyncio.TimerHandle | None = None

    def ready(self, status: str) -> None:
        """Every door is open, or what was reloaded counts."""
        self._tell("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """Settings are being read again; `ready` follows. The time tells which reload it is."""
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1_000}", "STATUS=reloading")

    def stopping(self) -> None:
        """Nothing new is taken; what was taken is delivered. Signs of life go on until the end."""
        self._tell("STOPPING=1", "STATUS=stopping")

    def give_signs(self, loop: asyncio.AbstractEventLoop) -> None:
        """Show from now on that the loop turns, if the manager wants to know."""
        if self._address and self._watchdog_s:
            self._tell("WATCHDOG=1")
            self._sign = loop.call_later(self._watchdog_s / SIGNS_PER_INTERVAL, self.give_signs, loop)

    def close(self) -> None:
        """Give no signs any more."""
        if self._sign is not None:
            self._sign.cancel()

    def _tell(self, *lines: str) -> None:
        """Send one datagram; a manager that is gone or does not listen is no reason to stop serving."""
        if not self._address:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
            sending.setblocking(False)
            sending.sendto("\n".join(lines).encode(), self._address)


def _address_of(name: str) -> str:
    """Where to send to; only names that can be a socket's, which others are ignored."""
    if name.startswith("@"):
        return "\0" + name[1:]
    return name if name.startswith("/") else ""


def _watchdog_of(environ: Mapping[str, str]) -> float:
    """How long we may be silent; 0 if nobody asked us."""
    given, process = environ.get(INTERVAL, ""), environ.get(PROCESS)
    if not given.isascii() or not given.isdigit() or (process and process != str(os.getpid())):
        return 0.0
    return int(given) / 1_000_000
