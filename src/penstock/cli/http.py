"""What the commands that ask a server over HTTP have in common: where it is, as whom, how a failure is told.

The client is imported inside functions: `penstock --help`, which looks at all commands, need not wait for it.
"""

import ssl
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from penstock.cli.connection import check_password, find_password, forget_stdout
from penstock.errors import BadCredentials, InvalidConfig, NotAuthorized, PenstockError

if TYPE_CHECKING:
    from penstock.client import HttpClient

HttpPort = Annotated[int, typer.Option("--port", "-p", min=1, max=65535, help="Its HTTP port.")]
Tls = Annotated[bool, typer.Option("--tls", help="Speak HTTPS.")]
CaFile = Annotated[
    Path | None,
    typer.Option("--ca-file", metavar="FILE", help="With --tls: trust these certificates, not the system's."),
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="End after so many.")]

HTTP_PORT = 8080


class HttpTarget(NamedTuple):
    """A server, and who asks it."""

    host: str
    port: int
    user: str | None = None
    password: str | None = None
    password_file: Path | None = None
    tls: bool = False
    ca_file: Path | None = None

    def check(self) -> None:
        """Refuse flags that do not go together."""
        check_password(self.user, self.password, self.password_file)
        if self.ca_file is not None and not self.tls:
            raise typer.BadParameter("--ca-file needs --tls")

    def connect(self) -> "HttpClient":
        """A client of this server; whether it is there shows with the first request."""
        from penstock.client import HttpClient  # noqa: PLC0415

        host = f"[{self.host}]" if ":" in self.host else self.host
        address = f"{'https' if self.tls else 'http'}://{host}:{self.port}"
        password = find_password(self.user, self.password, self.password_file)
        try:
            return HttpClient(address, self.user, password, tls=self._trusted())
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    def _trusted(self) -> ssl.SSLContext | None:
        if self.ca_file is None:
            return None
        try:
            return ssl.create_default_context(cafile=str(self.ca_file))
        except ssl.SSLError:
            raise InvalidConfig(f"--ca-file {self.ca_file}: there are no certificates in it") from None
        except OSError as error:
            raise InvalidConfig(f"--ca-file {self.ca_file}: {error.strerror}") from None


def run(target: HttpTarget, work: "Callable[[HttpClient], None]") -> None:
    """Do the work to its end or until Ctrl-C; a failure becomes one line and exit code 1."""
    target.check()
    try:
        with target.connect() as client:
            work(client)
            sys.stdout.flush()
    except KeyboardInterrupt:
        raise typer.Exit(0) from None
    except BrokenPipeError:
        forget_stdout()
        raise typer.Exit(0) from None
    except PenstockError as error:
        typer.echo(f"error: {' '.join(explain(error, target).split())}", err=True)
        raise typer.Exit(1) from None


def explain(error: PenstockError, target: HttpTarget) -> str:
    """What happened and what to try."""
    from penstock.client import ConnectionLost, ConnectionRefused, HttpRefused  # noqa: PLC0415

    who = f"user {target.user!r}" if target.user else "a client without --user"
    if isinstance(error, ConnectionLost):
        return f"{error}. Is {target.port} its HTTP port? MQTT and HTTPS have others."
    if isinstance(error, ConnectionRefused):
        return f"{error}. {_advice(str(error), target)}"
    if error.code == BadCredentials.code:
        return f"the server does not let {who} in: {error}. Check --user and --password."
    if error.code == NotAuthorized.code:
        return f"{who} is not allowed to see this: {error}."
    if isinstance(error, HttpRefused) and error.status == 404 and error.code in _NO_SUCH_PATH:
        return f"{error}. A server with http.admin_port answers this there: try --port."
    return str(error)


_NO_SUCH_PATH = ("not-found", "request-refused")


def _advice(text: str, target: HttpTarget) -> str:
    if "certificate" in text:
        return "--ca-file takes the certificate of whoever signed it."
    if "TLS" in text:
        return "If it does not, leave out --tls."
    if "no host" in text:
        return "Check --host."
    if "no connection" in text:
        return "Is a server running there? `penstock serve` starts one; --http-port is its HTTP port."
    return f"Is {target.port} the HTTP port of a Penstock server{'' if target.tls else ', without TLS'}?"
