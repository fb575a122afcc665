"""The dashboard beside a server: `penstock serve --dashboard` starts it as a child that ends with the server.

It is a process of its own, so that drawing pages never slows messages down. The socket is made here, before
the server starts: a port that is taken is told at once, and browsers that come early wait.
"""

import asyncio
import sys
from contextlib import suppress
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from penstock.cli.connection import HOST, first_line
from penstock.errors import InvalidConfig
from penstock.extras import require_extra

if TYPE_CHECKING:
    from penstock.app import Server
    from penstock.config import Settings

STOP_TIMEOUT_S = 5.0
PORT = 8501
"""Where a dashboard is, unless something else is said."""
_ANYWHERE = {"0.0.0.0": HOST, "[::]": "[::1]"}


class CompanionFlags(NamedTuple):
    """What `penstock serve` was told about its dashboard."""

    port: int
    user: str | None = None
    password_file: Path | None = None

    def check(self, settings: "Settings") -> None:
        """Refuse what cannot work, before the server starts.

        Raises:
            InvalidConfig: saying what is missing.
        """
        require_extra("dashboard", "--dashboard")
        http = settings.http
        is_plain = bool(http.port) if http.admin_port is None else not http.admin_tls
        if not is_plain:
            raise InvalidConfig(
                "--dashboard: needs a port that speaks plain HTTP (http.port, or http.admin_port without "
                "TLS); `penstock dashboard --address https://...` shows a server that has none"
            )
        if (self.user is None) != (self.password_file is None):
            raise InvalidConfig("--dashboard-user and --dashboard-password-file: give both or neither")
        if self.user is None and settings.access.wants_passwords:
            raise InvalidConfig(
                "--dashboard: this server wants a name and a password; "
                "give --dashboard-user and --dashboard-password-file"
            )


class Companion:
    """A dashboard that is a child of this process."""

    def __init__(self, flags: CompanionFlags) -> None:
        from penstock.dashboard.listening import address_of, listen  # noqa: PLC0415

        self._flags = flags
        self._password = None if flags.password_file is None else first_line(flags.password_file)
        self._listener: socket = listen(HOST, flags.port, "--dashboard-port")
        self.address = address_of(self._listener)
        self._process: asyncio.subprocess.Process | None = None
        self._watching: asyncio.Task[None] | None = None

    async def start(self, server: "Server") -> None:
        """Start it; it shows this server."""
        address = _address_for(server)
        order = {
            "listener": self._listener.fileno(),
            "address": address,
            "user": self._flags.user,
            "password": self._password,
        }
        with self._listener as listener:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "penstock.dashboard",
                stdin=asyncio.subprocess.PIPE,
                pass_fds=(listener.fileno(),),
                start_new_session=True,  # Ctrl-C is for the server, which ends it
            )
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(order) + b"\n")
        self._watching = asyncio.create_task(_watch(self._process, address))

    async def stop(self) -> None:
        """End it: its standard input ends, and it follows."""
        self._listener.close()
        if self._process is None or self._watching is None:
            return
        self._watching.cancel()
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), STOP_TIMEOUT_S)
        except TimeoutError:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()


async def _watch(process: asyncio.subprocess.Process, address: str) -> None:
    """Tell when the dashboard has ended by itself; the server goes on."""
    import structlog  # noqa: PLC0415 - the server has it by now

    code = await process.wait()
    structlog.get_logger("penstock.dashboard").warning(
        "dashboard ended", code=code, advice=f"`penstock dashboard --address {address}` starts another one"
    )


def _address_for(server: "Server") -> str:
    """Where the dashboard finds the server: at a port that has the admin's views, on this machine."""
    plain = [each for each in server.http.addresses() if each.startswith("http:")]
    address = plain[-1 if server.settings.http.admin_port is not None else 0]
    for everywhere, here in _ANYWHERE.items():
        address = address.replace(f"//{everywhere}:", f"//{here}:")
    return address
