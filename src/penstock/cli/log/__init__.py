"""`penstock log`: inspect, read, export, back up and repair a data directory.

All commands but `repair` work beside a running server and write nothing into the directory; `read`, `info`,
`position` and `holds` also ask a server over HTTP. RocksDB and Arrow
are imported when a command runs: `penstock --help` imports all commands.
"""

import typer

from penstock.cli.log.export import export
from penstock.cli.log.maintain import backup, info, repair, restore, verify
from penstock.cli.log.read import read, tail
from penstock.cli.log.remote import holds, position

__all__ = ["app"]

app = typer.Typer(
    help="Look into a data directory or the log of a server; export, back up or repair it.",
    no_args_is_help=True,
)
for command in (info, tail, read, position, holds, verify, export, backup, restore, repair):
    app.command()(command)
