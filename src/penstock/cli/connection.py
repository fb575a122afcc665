"""Where a server is and as whom commands talk to it; and how `pub` and `sub` do that, and tell a failure.

The client is imported inside functions: `penstock --help`, which looks at all commands, need not wait for it.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from penstock.errors import InvalidConfig, PenstockError
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
PasswordFile = Annotated[
    Path | None,
    typer.Option("--password-file", metavar="FILE", help="A file whose first line is the password."),
]
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
    password_file: Path | None
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
        """The same with the password, wherever that comes from."""
        return self._replace(password=find_password(self.user, self.password, self.password_file))


def run(target: Target, work: Callable[[Target], Coroutine[Any, Any, None]]) -> None:
    """Do the work to its end or until Ctrl-C; a failure becomes one line and exit code 1."""
    check_password(target.user, target.password, target.password_file)
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


def check_password(user: str | None, password: str | None, file: Path | None) -> None:
    """Refuse flags that do not go together."""
    if password is not None and file is not None:
        raise typer.BadParameter("give one of --password and --password-file")
    if user is None and (password is not None or file is not None):
        raise typer.BadParameter("a password needs --user")


def find_password(user: str | None, password: str | None, file: Path | None) -> str | None:
    """The password that was given, or that a file holds; else it is asked for if there is someone to ask.

    Raises:
        InvalidConfig: the file cannot be read.
    """
    if file is not None:
        return first_line(file)
    if user is None or password is not None or not sys.stdin.isatty():
        return password
    return str(typer.prompt("Password", hide_input=True, err=True))


def first_line(file: Path) -> str:
    """The password that a file holds.

    Raises:
        InvalidConfig: the file cannot be read.
    """
    try:
        return file.read_text(encoding="utf-8").partition("\n")[0].removesuffix("\r")
    except OSError as error:
        raise InvalidConfig(f"--password-file {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidConfig(f"--password-file {file}: not UTF-8") from None


def forget_stdout() -> None:
    """Whoever read our output has gone: let the last flush at exit go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
