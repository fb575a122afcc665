"""`penstock pipeline`: jobs on Spark that keep a lake of Parquet files behind the log, and use it.

Spark is imported when a command runs, because `penstock --help` looks at all commands.
"""

import typer

from penstock.cli.pipeline.archive import archive
from penstock.cli.pipeline.audit import audit
from penstock.cli.pipeline.compact import compact
from penstock.cli.pipeline.expire import expire
from penstock.cli.pipeline.insights import insights
from penstock.cli.pipeline.replay import replay

__all__ = ["app"]

app = typer.Typer(help="Keep a lake behind the log with Spark, and use it.", no_args_is_help=True)
for command in (archive, audit, replay, insights, compact, expire):
    app.command()(command)
