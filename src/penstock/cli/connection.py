"""The flags of every command that talks to a server: where it is, as whom, whom to trust."""

import ssl
import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.flags import Group
from penstock.errors import InvalidConfig

PANEL = "Server"
TLS_PANEL = "TLS"
HOST = "127.0.0.1"

User = Annotated[
    str | None,
    typer.Option("--user", metavar="NAME", help="Name to connect with.", rich_help_panel=PANEL),
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="A file whose first line is the password.",
        rich_help_panel=PANEL,
    ),
]


class ServerFlags(Group, frozen=True, kw_only=True):
    """A server, and who wants to talk to it; which port that is, and which schemes, is for others to say."""

    address: Annotated[
        str | None,
        typer.Option(
            "--address",
            metavar="URL",
            help="Where the server is, in place of --host, --port and --tls.",
            rich_help_panel=PANEL,
        ),
    ] = None
    host: Annotated[
        str | None,
        typer.Option(
            "--host", metavar="HOST", help=f"Where the server is; default: {HOST}.", rich_help_panel=PANEL
        ),
    ] = None
    port: Annotated[int | None, typer.Option("--port", "-p", min=1, max=65535, rich_help_panel=PANEL)] = None
    user: User = None
    password: Annotated[
        str | None,
        typer.Option(
            "--password",
            metavar="PASSWORD",
            help="Asked for when only --user is given.",
            rich_help_panel=PANEL,
        ),
    ] = None
    password_file: PasswordFile = None
    connect_timeout: Annotated[
        float,
        typer.Option(
            "--connect-timeout",
            min=0.1,
            metavar="SECONDS",
            help="How long the server may take to answer.",
            rich_help_panel=PANEL,
        ),
    ] = 10.0
    tls: Annotated[bool, typer.Option("--tls", help="Speak TLS.", rich_help_panel=TLS_PANEL)] = False
    ca_file: Annotated[
        Path | None,
        typer.Option(
            "--ca-file",
            metavar="FILE",
            help="Trust these certificates, not the system's.",
            rich_help_panel=TLS_PANEL,
        ),
    ] = None
    cert_file: Annotated[
        Path | None,
        typer.Option(
            "--cert-file",
            metavar="FILE",
            help="A certificate of one's own, if the server wants one.",
            rich_help_panel=TLS_PANEL,
        ),
    ] = None
    key_file: Annotated[
        Path | None,
        typer.Option(
            "--key-file", metavar="FILE", help="Its key, if in another file.", rich_help_panel=TLS_PANEL
        ),
    ] = None

    def check_who(self) -> None:
        """Refuse flags about the user that do not go together."""
        if self.password is not None and self.password_file is not None:
            raise typer.BadParameter("give one of --password and --password-file")
        if self.user is None and (self.password is not None or self.password_file is not None):
            raise typer.BadParameter("a password needs --user")

    def find_password(self) -> str | None:
        """The password that was given, or that a file holds; else it is asked for if there is someone to ask.

        Raises:
            InvalidConfig: the file cannot be read.
        """
        if self.password_file is not None:
            return first_line(self.password_file)
        if self.user is None or self.password is not None or not sys.stdin.isatty():
            return self.password
        return str(typer.prompt("Password", hide_input=True, err=True))

    def trusted(self, is_secure: bool) -> ssl.SSLContext | None:
        """Whom to trust and who we are; None where no TLS is spoken.

        Raises:
            InvalidConfig: a file cannot be read, or has no certificates.
        """
        if not is_secure:
            if (self.ca_file, self.cert_file, self.key_file) != (None, None, None):
                raise typer.BadParameter("--ca-file, --cert-file and --key-file need --tls")
            return None
        if self.key_file is not None and self.cert_file is None:
            raise typer.BadParameter("--key-file needs --cert-file")
        context = trusting(self.ca_file)
        if self.cert_file is not None:
            _show(context, self.cert_file, self.key_file)
        return context

    @property
    def who(self) -> str:
        """Who asks, in words."""
        return f"user {self.user!r}" if self.user else "a client without --user"


def trusting(file: Path | None) -> ssl.SSLContext:
    """Trust the certificates of a file, or those that the system trusts.

    Raises:
        InvalidConfig: the file cannot be read, or has no certificates.
    """
    try:
        return ssl.create_default_context(cafile=None if file is None else str(file))
    except ssl.SSLError:
        raise InvalidConfig(f"--ca-file {file}: there are no certificates in it") from None
    except OSError as error:
        raise InvalidConfig(f"--ca-file {file}: {error.strerror}") from None


def _show(context: ssl.SSLContext, certificate: Path, key: Path | None) -> None:
    """Let the server see our certificate, if it asks for one."""
    try:
        context.load_cert_chain(certificate, key, password=lambda: "")  # which would be asked for otherwise
    except ssl.SSLError:
        where = f"{certificate} and {key}" if key else str(certificate)
        raise InvalidConfig(
            f"--cert-file {where}: no certificate with its key, or the key has a password"
        ) from None
    except OSError as error:
        raise InvalidConfig(f"--cert-file {certificate}, --key-file {key}: {error.strerror}") from None


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
