"""`penstock log export`: messages as a file for other programs."""

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.flags import spread
from penstock.cli.log.asking import RequestFlags
from penstock.cli.log.endings import end
from penstock.cli.log.opened import Directory, opened
from penstock.cli.output import Output, OutputOption
from penstock.cli.progress import bar
from penstock.errors import InvalidConfig


@spread
def export(
    directory: Directory,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="FILE.parquet or FILE.jsonl; replaced if it is there.")
    ],
    *,
    asked: RequestFlags,
    output: OutputOption = Output.TEXT,
) -> None:
    """Write messages to a Parquet file, or as JSON lines.

    The file appears when it is complete. Ends with 3 when something that was asked for is missing.
    """
    request = asked.request()
    with opened(directory) as snapshot:
        from penstock.cli.log.files import KINDS, replacing  # noqa: PLC0415 - Arrow takes a while
        from penstock.cli.log.serving import Serving  # noqa: PLC0415

        if file.suffix not in KINDS:
            raise typer.BadParameter(f"the name of the file has to end with one of {', '.join(KINDS)}")
        if not file.parent.is_dir():
            raise InvalidConfig(f"{file.parent}: no such directory")
        serving = Serving(snapshot, request)
        total = serving.until - serving.after
        with (
            replacing(file) as out,
            closing(KINDS[file.suffix](out)) as exporter,
            bar(file.name, total) as advance,
        ):
            for batch in serving.batches(advance):
                exporter.write(batch)
            statement = serving.statement()
            exporter.finish(statement)
        end(statement, output)
