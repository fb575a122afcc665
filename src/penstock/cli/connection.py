"""What `pub` and `sub` have in common: where to connect and as whom, and how a failure is told.

The client is imported inside functions: `penstock --help`, which looks at all commands, need not wait for it.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from penstock.errors import PenstockError
from penstock.wire.mqtt.reasons import ReasonCode

if TYPE_CHECKING:
    from penstock.client.mqtt import Connecting


class Output(StrEnum):
    """How results are written."""

    TEXT = "text"
    JSON = "json"


class MqttVersion(StrEnum):
    """3 stands for 3.1.1."""

    V3 = "3"
    V5 = "5"


Host = Annotated[str, typer.Option("--host", help="Where the server is.")]
Port = Annotated[int, typer.Option("--port", "-p", min=1, max=65535, help="Its MQTT port.")]
User = Annotated[str | None, typer.Option("--user", help="Name to connect with.")]
Password = Annotated[str | None, typer.Option("--password", help="Asked for when only --user is given.")]
ClientId = Annotated[str, typer.Option("--client-id", help="Default: the server gives one.")]
Qos = Annotated[int, typer.Option("--qos", "-q", min=0, max=2, help="0, 1 or 2.")]
MqttVersionOption = Annotated[MqttVersion, typer.Option("--mqtt-version", help="3 (3.1.1) or 5.")]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How to write it.")]
Timings = Annotated[bool, typer.Option("--timings", help="Also tell how fast it went, on standard error.")]


class Target(NamedTuple):
    """A server, and who wants to talk to it."""

    host: str
    port: int
    user: str | None
    password: str | None
    client_id: str
    version: MqttVersion
    session_expiry_s: int | None = None
    """How long a session outlives its connection; with it an earlier one is continued."""

    def connect(self) -> "Connecting":
        """A client of this server, to be entered or awaited."""
        from penstock.client import MqttClient, PacketProperties, Version  # noqa: PLC0415

        return MqttClient.connect(
            self.host,
            self.port,
            client_id=self.client_id,
            version=Version.V5 if self.version is MqttVersion.V5 else Version.V311,
            user=self.user,
            password=self.password,
            clean_start=self.session_expiry_s is None,
            properties=PacketProperties(session_expiry=self.session_expiry_s),
        )

    def with_password(self) -> "Target":
        """The same, after asking for the password if there is someone to ask."""
        if self.user is None or self.password is not None or not sys.stdin.isatty():
            return self
        return self._replace(password=typer.prompt("Password", hide_input=True, err=True))


def run(target: Target, work: Callable[[Target], Coroutine[Any, Any, None]]) -> None:
    """Do the work to its end or until Ctrl-C; a failure becomes one line and exit code 1."""
    try:
        asyncio.run(work(target.with_password()))
    except KeyboardInterrupt:
        raise typer.Exit(0) from None
    except BrokenPipeError:
        forget_stdout()
        raise typer.Exit(0) from None
    except PenstockError as error:
        typer.echo(f"error: {explain(error, target)}", err=True)
        raise typer.Exit(1) from None


def explain(error: PenstockError, target: Target) -> str:
    """What happened and what to try, in one line."""
    from penstock.client import ConnectionRefused  # noqa: PLC0415

    if not isinstance(error, ConnectionRefused):
        return str(error)
    if error.reason is None:
        return f"{error}. Is a server running there? `penstock serve` starts one."
    if error.reason in (ReasonCode.BAD_USER_NAME_OR_PASSWORD, ReasonCode.NOT_AUTHORIZED):
        who = f"user {target.user!r}" if target.user else "a client without --user"
        return f"the server does not let {who} in: {error}. Check --user and --password."
    return f"the server refused the connection: {error}."


def forget_stdout() -> None:
    """Whoever read our output has gone: let the last flush at exit go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
