"""`penstock log read`: messages of the log, by place, time, topic and sequence."""

import sys

from penstock.cli.flags import spread
from penstock.cli.log.asking import RequestFlags
from penstock.cli.log.endings import end
from penstock.cli.log.opened import Directory, opened
from penstock.cli.output import Output, OutputOption


@spread
def read(
    directory: Directory,
    *,
    asked: RequestFlags,
    output: OutputOption = Output.TEXT,
) -> None:
    """Write messages, oldest first, and at the end what was served and what is missing.

    Ends with 3 when something that was asked for is missing.
    """
    request = asked.request()
    with opened(directory) as snapshot:
        from penstock.cli.log.lines import lines_for  # noqa: PLC0415
        from penstock.cli.log.serving import Serving  # noqa: PLC0415 - Arrow takes a while

        serving, lines = Serving(snapshot, request), lines_for(output)
        for batch in serving.batches():
            sys.stdout.buffer.writelines(lines(batch))
        statement = serving.statement()
        end(statement, output)
