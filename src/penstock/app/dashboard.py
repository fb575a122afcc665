"""Dashboard beside a server: a child process that ends with the server (`penstock serve --dashboard`).

A process of its own, so that drawing pages never delays messages. The socket is opened here, before the
server starts: a port in use is reported at once, and browsers that come early wait.
"""

import asyncio
import sys
from contextlib import suppress
from socket import socket
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from penstock.errors import InvalidConfig
from penstock.extras import require_extra

if TYPE_CHECKING:
    from penstock.app import Server
    from penstock.config import Settings

HOST = "127.0.0.1"
STOP_TIMEOUT_S = 5.0
_LOOPBACK = {"0.0.0.0": HOST, "[::]": "[::1]"}  # noqa: S104 - looked up, not bound
"""Loopback addresses of wildcard addresses."""


class DashboardOptions(NamedTuple):
    """Options of the dashboard beside a server."""

    port: int
    user: str | None = None
    password: str | None = None

    def check(self, settings: "Settings") -> None:
        """Refuse options that do not fit the settings, before the server starts.

        Raises:
            InvalidConfig: the dashboard could not connect to the server.
        """
        require_extra("dashboard", "--dashboard")
        http = settings.http
        is_plain = bool(http.port) if http.admin_port is None else not http.admin_tls
        if not is_plain:
            raise InvalidConfig(
                "--dashboard: needs a port that speaks plain HTTP (http.port, or http.admin_port without "
                "TLS); `penstock dashboard --address https://...` shows a server that has none"
            )
        if (self.user is None) != (self.password is None):
            raise InvalidConfig("--dashboard-user and --dashboard-password-file: give both or neither")
        if self.user is None and settings.access.wants_passwords:
            raise InvalidConfig(
                "--dashboard: this server wants a name and a password; "
                "give --dashboard-user and --dashboard-password-file"
            )


class Dashboard:
    """Dashboard as a child process."""

    def __init__(self, options: DashboardOptions) -> None:
        """Open its port.

        Raises:
            InvalidConfig: the port is in use.
        """
        from penstock.dashboard.listener import address_of, listen  # noqa: PLC0415

        self._options = options
        self._listener: socket = listen(HOST, options.port, "--dashboard-port")
        self.address = address_of(self._listener)
        self._process: asyncio.subprocess.Process | None = None
        self._watching: asyncio.Task[None] | None = None

    async def start(self, server: "Server") -> None:
        """Start the process; it shows this server."""
        address = _address_for(server)
        order = {
            "listener": self._listener.fileno(),
            "address": address,
            "user": self._options.user,
            "password": self._options.password,
        }
        with self._listener as listener:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "penstock.dashboard",
                stdin=asyncio.subprocess.PIPE,
                pass_fds=(listener.fileno(),),
                start_new_session=True,  # Ctrl-C reaches only the server, which stops it
            )
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(order) + b"\n")
        self._watching = asyncio.create_task(_watch(self._process, address))

    async def stop(self) -> None:
        """Stop the process: it ends when its standard input is closed."""
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
    """Log an unexpected end of the dashboard; the server continues."""
    import structlog  # noqa: PLC0415 - the server has imported it

    code = await process.wait()
    structlog.get_logger("penstock.dashboard").warning(
        "dashboard ended", code=code, advice=f"`penstock dashboard --address {address}` starts another one"
    )


def _address_for(server: "Server") -> str:
    """The address of the server for the dashboard: the admin port if there is one, on loopback."""
    plain = [each for each in server.http.addresses() if each.startswith("http:")]
    address = plain[-1 if server.settings.http.admin_port is not None else 0]
    for wildcard, loopback in _LOOPBACK.items():
        address = address.replace(f"//{wildcard}:", f"//{loopback}:")
    return address
