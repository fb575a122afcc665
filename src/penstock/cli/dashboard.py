"""`penstock dashboard`: pages in a browser that show live what a server reports."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.companion import PORT
from penstock.cli.connection import HOST, PasswordFile, User
from penstock.cli.pipeline.options import HERE, Address, CaFile, Server
from penstock.errors import InvalidConfig
from penstock.extras import require_extra

if TYPE_CHECKING:
    from penstock.dashboard.source import Source

Lake = Annotated[
    Path | None,
    typer.Option("--lake", metavar="FOLDER", help="Also show this lake, which `penstock pipeline` keeps."),
]
Host = Annotated[str, typer.Option("--host", metavar="HOST", help="Address to listen on.")]
Port = Annotated[int, typer.Option("--port", "-p", min=0, max=65535, help="Port; 0 takes a free one.")]


def dashboard(
    *,
    address: Address = HERE,
    user: User = None,
    password_file: PasswordFile = None,
    ca_file: CaFile = None,
    lake: Lake = None,
    host: Host = HOST,
    port: Port = PORT,
) -> None:
    """Show a server's figures in a browser, live and read-only."""
    from penstock.dashboard.listening import (  # noqa: PLC0415 - the client takes a while
        address_of,
        is_loopback,
        listen,
    )
    from penstock.dashboard.source import Source  # noqa: PLC0415

    require_extra("dashboard", "penstock dashboard")
    asked = Server(address=address, user=user, password_file=password_file, ca_file=ca_file).options()
    source = Source(asked["address"], user, asked.get("password"), ca_file, _folder(lake))
    _check(source)
    listener = listen(host, port, "--port")
    print(
        f"The dashboard is at {address_of(listener)} and shows {source.address}. Ctrl-C stops it.", flush=True
    )
    if not is_loopback(listener):
        print(
            f"note: whoever can reach {host} sees what the dashboard may see; it asks for no password.",
            file=sys.stderr,
        )
    from penstock.dashboard.server import serve  # noqa: PLC0415 - takes long; browsers that come early wait

    serve(source, listener)


def _check(source: "Source") -> None:
    """Refuse what no client could be made of; whether the server is there shows in the browser."""
    try:
        source.connect().close()
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _folder(lake: Path | None) -> Path | None:
    if lake is None:
        return None
    if not lake.is_dir():
        raise InvalidConfig(f"--lake {lake}: there is no such folder")
    return lake.resolve()
