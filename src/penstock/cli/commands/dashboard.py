"""`penstock dashboard`: runs the dashboard, which shows the metrics of a server in a browser."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.flags import DASHBOARD_PORT, HOST, PasswordFile, User
from penstock.cli.pipeline.flags import HERE, Address, CaFile, ServerOptions
from penstock.errors import InvalidConfig
from penstock.extras import require_extra

if TYPE_CHECKING:
    from penstock.dashboard.poller import Source

Lake = Annotated[
    Path | None,
    typer.Option("--lake", metavar="FOLDER", help="Also show this lake, which `penstock pipeline` keeps."),
]
Host = Annotated[str, typer.Option("--host", metavar="HOST", help="Address to listen on.")]
Port = Annotated[
    int,
    typer.Option("--port", "-p", min=0, max=65535, metavar="PORT", help="Port; 0 takes a free one."),
]


def dashboard(
    *,
    address: Address = HERE,
    user: User = None,
    password_file: PasswordFile = None,
    ca_file: CaFile = None,
    lake: Lake = None,
    host: Host = HOST,
    port: Port = DASHBOARD_PORT,
) -> None:
    """Show the lake, latency and backpressure of a server in a browser, live and read-only."""
    from penstock.dashboard.listener import address_of, is_loopback, listen  # noqa: PLC0415 - takes a while
    from penstock.dashboard.poller import Source  # noqa: PLC0415

    require_extra("dashboard", "penstock dashboard")
    asked = ServerOptions(address=address, user=user, password_file=password_file, ca_file=ca_file).options()
    source = Source(asked["address"], user, asked.get("password"), ca_file, _folder(lake))
    _check(source)
    listener = listen(host, port, "--port")
    print(
        f"The dashboard is at {address_of(listener)} and shows {source.address}. Ctrl-C stops it.", flush=True
    )
    if not is_loopback(listener):
        print(
            f"note: the dashboard needs no password: every browser that reaches {host} can see it.",
            file=sys.stderr,
        )
    from penstock.dashboard.server import serve  # noqa: PLC0415 - takes a while; early browsers wait

    serve(source, listener)


def _check(source: "Source") -> None:
    """Refuse an invalid address or user; a server that does not respond is shown in the browser."""
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
