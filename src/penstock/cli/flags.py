"""Groups of flags that several commands share, written once as the fields of a struct.

A command takes a group as one parameter, and `spread` shows typer a flag for each of its fields:

    class Target(Group):
        host: Annotated[str, typer.Option("--host", help="Host of the server.")] = "127.0.0.1"

    @spread
    def greet(name: str, *, target: Target) -> None: ...

is the command `greet NAME [--host TEXT]`. `ServerFlags` are the flags of every command that connects to a
server: address, user, TLS.
"""

import ssl
import sys
from collections.abc import Callable, Iterator
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec import NODEFAULT, Struct
from msgspec.structs import fields

from penstock.common.durations import parse_duration, write_duration
from penstock.errors import InvalidConfig

SERVER_PANEL = "Server"
TLS_PANEL = "TLS"
HOST = "127.0.0.1"
DASHBOARD_PORT = 8501
"""Default port of the dashboard."""


class Group(Struct, frozen=True, kw_only=True):
    """Flags that belong together; a field has the annotation and the default of a parameter."""


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter that is a group by its flags."""
    shape = signature(command)
    groups = {each.name: each.annotation for each in shape.parameters.values() if _is_group(each.annotation)}

    @wraps(command)
    def with_groups(*arguments: Any, **given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field: given.pop(field) for field in group.__struct_fields__})
        command(*arguments, **given)

    flags = [flag for each in shape.parameters.values() for flag in _flags_of(each)]
    with_groups.__signature__ = Signature(flags, return_annotation=None)  # type: ignore[attr-defined]
    with_groups.__annotations__ = {flag.name: flag.annotation for flag in flags} | {"return": None}
    return with_groups


def _is_group(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Group)


def _flags_of(parameter: Parameter) -> Iterator[Parameter]:
    """The parameters that typer sees: the parameter itself, or the fields of its group."""
    if not _is_group(parameter.annotation):
        yield parameter
        return
    for field in fields(parameter.annotation):
        default = Parameter.empty if field.default is NODEFAULT else field.default
        yield Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=field.type)


def parse_seconds(least: float, most: float, is_whole: bool, text: str | float) -> float:
    """Seconds of a flag: a plain number, or one with a unit such as `500ms`, `30s` or `7d`.

    Args:
        is_whole: only whole seconds are valid.
    """
    try:
        given = parse_duration(text) if isinstance(text, str) else None
        seconds = float(text) if given is None else given
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a duration; write seconds, or 500ms, 30s, 5m, 7d"
        ) from None
    if not least <= seconds <= most:
        limit = f"at least {least:g} s" if seconds < least else f"at most {most:.0f} s"
        raise typer.BadParameter(f"{text} is out of range: give {limit}")
    if is_whole and seconds % 1:
        raise typer.BadParameter(f"{text} is not a whole number of seconds")
    return int(seconds) if is_whole else seconds


def duration_option(
    flag: str,
    help: str,
    *,
    least: float = 0.0,
    most: float = 1e12,
    is_whole: bool = False,
    default: float | None = None,
    panel: str | None = None,
) -> Any:
    """A flag whose value is a duration, in seconds.

    Args:
        default: shown as the default, with a unit.
    """
    return typer.Option(
        flag,
        parser=partial(parse_seconds, least, most, is_whole),
        metavar="DURATION",
        help=help,
        show_default=False if default is None else write_duration(default),
        rich_help_panel=panel,
    )


CONNECT_TIMEOUT_S = 10.0

User = Annotated[
    str | None,
    typer.Option("--user", metavar="NAME", help="User name to connect with.", rich_help_panel=SERVER_PANEL),
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="File whose first line is the password.",
        rich_help_panel=SERVER_PANEL,
    ),
]


class ServerFlags(Group, frozen=True, kw_only=True):
    """Flags of a connection to a server; subclasses add the port and the protocol."""

    address: Annotated[
        str | None,
        typer.Option(
            "--address",
            metavar="URL",
            help="Address of the server, such as far.example:8883, in place of --host, --port and --tls.",
            rich_help_panel=SERVER_PANEL,
        ),
    ] = None
    host: Annotated[
        str | None,
        typer.Option(
            "--host",
            metavar="HOST",
            help=f"Host of the server; default: {HOST}.",
            rich_help_panel=SERVER_PANEL,
        ),
    ] = None
    port: Annotated[
        int | None, typer.Option("--port", "-p", min=1, max=65535, rich_help_panel=SERVER_PANEL)
    ] = None
    user: User = None
    password: Annotated[
        str | None,
        typer.Option(
            "--password",
            metavar="PASSWORD",
            help="Password; prompted for when only --user is given.",
            rich_help_panel=SERVER_PANEL,
        ),
    ] = None
    password_file: PasswordFile = None
    connect_timeout: Annotated[
        float,
        duration_option(
            "--connect-timeout",
            "Time limit for a response of the server.",
            least=0.1,
            default=CONNECT_TIMEOUT_S,
            panel=SERVER_PANEL,
        ),
    ] = CONNECT_TIMEOUT_S
    tls: Annotated[bool, typer.Option("--tls", help="Use TLS.", rich_help_panel=TLS_PANEL)] = False
    ca_file: Annotated[
        Path | None,
        typer.Option(
            "--ca-file",
            metavar="FILE",
            help="Trust these CA certificates (PEM), not the system's.",
            rich_help_panel=TLS_PANEL,
        ),
    ] = None
    cert_file: Annotated[
        Path | None,
        typer.Option(
            "--cert-file", metavar="FILE", help="Client certificate (PEM).", rich_help_panel=TLS_PANEL
        ),
    ] = None
    key_file: Annotated[
        Path | None,
        typer.Option(
            "--key-file",
            metavar="FILE",
            help="Key of the client certificate, if in another file.",
            rich_help_panel=TLS_PANEL,
        ),
    ] = None

    def check_user(self) -> None:
        """Refuse flags about the user that contradict each other."""
        if self.password is not None and self.password_file is not None:
            raise typer.BadParameter("give one of --password and --password-file")
        if self.user is None and (self.password is not None or self.password_file is not None):
            raise typer.BadParameter("a password needs --user")

    def find_password(self) -> str | None:
        """The password: given, from a file, or prompted for on a terminal.

        Raises:
            InvalidConfig: the file cannot be read.
        """
        if self.password_file is not None:
            return read_password_file(self.password_file)
        if self.user is None or self.password is not None or not sys.stdin.isatty():
            return self.password
        return str(typer.prompt("Password", hide_input=True, err=True))

    def tls_context(self, is_secure: bool) -> ssl.SSLContext | None:
        """Trusted CAs and the client certificate; None for a connection without TLS.

        Raises:
            InvalidConfig: a file cannot be read, or has no certificates.
        """
        if not is_secure:
            if (self.ca_file, self.cert_file, self.key_file) != (None, None, None):
                raise typer.BadParameter("--ca-file, --cert-file and --key-file need --tls")
            return None
        if self.key_file is not None and self.cert_file is None:
            raise typer.BadParameter("--key-file needs --cert-file")
        context = trust_file(self.ca_file)
        if self.cert_file is not None:
            _load_certificate(context, self.cert_file, self.key_file)
        return context

    @property
    def who(self) -> str:
        """The user, for error texts."""
        return f"user {self.user!r}" if self.user else "a client without --user"


def trust_file(file: Path | None) -> ssl.SSLContext:
    """A TLS context that trusts the certificates of a file, or those of the system.

    Raises:
        InvalidConfig: the file cannot be read, or has no certificates.
    """
    try:
        return ssl.create_default_context(cafile=None if file is None else str(file))
    except ssl.SSLError:
        raise InvalidConfig(f"--ca-file {file}: there are no certificates in it") from None
    except OSError as error:
        raise InvalidConfig(f"--ca-file {file}: {error.strerror}") from None


def _load_certificate(context: ssl.SSLContext, certificate: Path, key: Path | None) -> None:
    """Add the client certificate to a TLS context."""
    try:
        context.load_cert_chain(certificate, key, password=lambda: "")  # otherwise OpenSSL prompts for it
    except ssl.SSLError:
        where = f"{certificate} and {key}" if key else str(certificate)
        raise InvalidConfig(
            f"--cert-file {where}: no certificate with its key, or the key has a password"
        ) from None
    except OSError as error:
        raise InvalidConfig(f"--cert-file {certificate}, --key-file {key}: {error.strerror}") from None


def read_password_file(file: Path, flag: str = "--password-file") -> str:
    """The first line of a password file.

    Raises:
        InvalidConfig: the file cannot be read.
    """
    try:
        return file.read_text(encoding="utf-8").partition("\n")[0].removesuffix("\r")
    except OSError as error:
        raise InvalidConfig(f"{flag} {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidConfig(f"{flag} {file}: not UTF-8") from None
