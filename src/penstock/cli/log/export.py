"""`penstock log export`: messages as a file for other programs."""

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.connection import Output
from penstock.cli.log.asking import (
    AfterOption,
    FilterOption,
    FirstOption,
    FromOffsetOption,
    LastOption,
    LimitOption,
    Request,
    SinceOption,
    TopicOption,
    UntilOption,
)
from penstock.cli.log.bars import bar
from penstock.cli.log.endings import end
from penstock.cli.log.opened import Directory, opened
from penstock.errors import InvalidConfig


def export(
    directory: Directory,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="FILE.parquet or FILE.jsonl; replaced if it is there.")
    ],
    *,
    after: AfterOption = None,
    from_offset: FromOffsetOption = None,
    topic: TopicOption = None,
    first: FirstOption = None,
    last: LastOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    filters: FilterOption = None,
    limit: LimitOption = None,
) -> None:
    """Write messages to a Parquet file, or as JSON lines.

    The file appears when it is complete. Ends with 3 when something that was asked for is missing.
    """
    request = Request(
        after=after,
        from_offset=from_offset,
        topic=topic,
        first=first,
        last=last,
        since=since,
        until=until,
        filters=tuple(filters or ()),
        limit=limit,
    )
    request.check()
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
        end(statement, Output.TEXT)
