"""`penstock pipeline`: Spark jobs that keep a lake of Parquet files behind the log, and use it.

Spark is imported when a command runs: `penstock --help` imports all commands.
"""

import typer

from penstock.cli.pipeline.lake import archive, audit, compact, expire
from penstock.cli.pipeline.replay import insights, replay

__all__ = ["app"]

app = typer.Typer(help="Keep a lake behind the log with Spark, and use it.", no_args_is_help=True)
for command in (archive, audit, replay, insights, compact, expire):
    app.command()(command)
