"""`penstock log`: look into a data directory, take messages out of it, and put a damaged one in order.

All but `repair` work beside a running server and write nothing into the directory. RocksDB and Arrow are
imported when a command runs, because `penstock --help` looks at all commands.
"""

import typer

from penstock.cli.log.backup import backup, restore
from penstock.cli.log.export import export
from penstock.cli.log.info import info
from penstock.cli.log.read import read
from penstock.cli.log.repair import repair
from penstock.cli.log.tail import tail
from penstock.cli.log.verify import verify

__all__ = ["app"]

app = typer.Typer(help="Look into a data directory, export, back up or repair it.", no_args_is_help=True)
for command in (info, tail, read, verify, export, backup, restore, repair):
    app.command()(command)
