"""`penstock log repair`: put a damaged directory in order, with the server stopped."""

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from penstock.cli.log.endings import counted, offsets_of
from penstock.cli.log.opened import Directory, spoken
from penstock.cli.output import Output, OutputOption

if TYPE_CHECKING:
    from penstock.cli.log.mending import Mended


def repair(
    directory: Directory,
    *,
    copy: Annotated[
        bool, typer.Option("--copy/--no-copy", help="Whether to keep everything as it was in a copy.")
    ] = True,
    empty: Annotated[
        bool, typer.Option("--empty", help="If the database is missing: begin with an empty one.")
    ] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Keep what can be read, make anew what is stored about it, and say what is lost.

    The server has to be stopped. A directory that is in order is left as it is. Ends with 0 when what is left
    is in order, whatever is lost, and with 1 when it could not do its work.
    """
    with spoken(directory):
        from penstock.cli.log.mending import mend  # noqa: PLC0415 - RocksDB and Arrow take a while

        mended = mend(directory, keeps_copy=copy, may_empty=empty)
        if output is Output.JSON:
            print(_as_json(mended))
        else:
            _print(mended)


def _as_json(mended: "Mended") -> str:
    content = {
        "findings": [
            {"what": each.what, "first": each.first, "last": each.last, "remedy": each.remedy}
            for each in mended.findings
        ],
        "lost": mended.lost,
        "is_state_doubtful": mended.is_state_doubtful,
        "sealed": mended.sealed,
        "copy": None if mended.copy is None else str(mended.copy),
        "has_changed": mended.has_changed,
    }
    return msgspec.json.encode(content).decode()


def _print(mended: "Mended") -> None:
    if not mended.findings:
        print("all is well: nothing to repair")
        return
    for finding in mended.findings:
        print(f"damaged: {finding.text}")
    for gap in mended.lost:
        print(f"lost: {offsets_of(gap)} cannot be read any more")
    if mended.is_state_doubtful:
        print("lost: changes of sessions, perhaps")
    if mended.sealed:
        print(f"sealed {counted(mended.sealed, 'message')}")
    if mended.copy is not None:
        print(f"as it was before: {mended.copy}")
    if mended.has_changed:
        print("the directory is in order" + (", but for what is lost" if mended.lost else ""))
    else:
        print("nothing can be done about it")
