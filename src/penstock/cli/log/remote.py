"""The log of a running server, over HTTP: `penstock log read` without a directory, `position` and `holds`."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from penstock.cli.connect import HttpServer, run_http
from penstock.cli.flags import spread
from penstock.cli.output import Column, Output, OutputOption, print_facts, print_rows, text_of
from penstock.common.cursor import Cursor
from penstock.common.statement import Gap, Missing, Statement
from penstock.common.text import count_text, duration_text, size_text
from penstock.common.topics import is_wildcard
from penstock.model import Reason

if TYPE_CHECKING:
    from penstock.cli.log.read import RequestFlags
    from penstock.client import HttpClient
    from penstock.client import Statement as ClientStatement

HOLD_COLUMNS = ("name", "owner", "offset", "lapse_s", "lapses_at", "filters", "cursor")
HOLDS_SHOWN = (
    Column("hold", lambda row: text_of(row["name"])),
    Column("owner", lambda row: text_of(row["owner"])),
    Column("keeps what is after", lambda row: count_text(row["offset"]), is_number=True),
    Column("lapses after", lambda row: duration_text(row["lapse_s"])),
    Column("at", lambda row: text_of(row["lapses_at"])),
    Column("filters", lambda row: ", ".join(row["filters"]) or "all"),
)
PLACES = ("earliest", "latest")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_remote(server: HttpServer, asked: "RequestFlags", output: Output) -> None:
    """Write messages of a server's log, and what is missing."""
    if (asked.from_offset, asked.first, asked.last) != (None, None, None):
        raise typer.BadParameter("--from-offset, --first and --last need a DIRECTORY; use --after or --since")
    if asked.topic is not None and is_wildcard(asked.topic):
        raise typer.BadParameter("--topic is one topic; --filter takes wildcards")
    filters = [asked.topic] if asked.topic is not None else list(asked.filters or ())

    def work(client: "HttpClient") -> None:
        from penstock.cli.log.read import finish, lines_for, write_batches  # noqa: PLC0415 - no cycle

        until = None if asked.until is None else client.position(_time(asked.until)).cursor
        start = None if asked.since is None else _time(asked.since)
        with client.read_log(
            after=asked.after, start=start, until=until, filters=filters, limit_rows=asked.limit
        ) as reading:
            write_batches(reading, lines_for(output))
            finish(_statement(reading.statement), output)

    if asked.after is not None and asked.since is not None:
        raise typer.BadParameter("give one of --after and --since")
    run_http(server, work)


@spread
def position(
    at: Annotated[
        str,
        typer.Argument(metavar="[PLACE]", help="earliest, latest, a time, or an age such as 10m."),
    ] = "latest",
    *,
    after: Annotated[
        str | None,
        typer.Option("--after", metavar="CURSOR", help="Also count the messages after this cursor."),
    ] = None,
    filters: Annotated[
        list[str] | None,
        typer.Option("--filter", metavar="FILTER", help="With --after: count only topics that match."),
    ] = None,
    server: HttpServer,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show a position in the log of a running server, as a cursor to begin at."""
    from penstock.cli.log.read import parse_time  # noqa: PLC0415 - no cycle

    place = at if at in PLACES else _time(parse_time(at))

    def work(client: "HttpClient") -> None:
        found = client.position(place, after=after, filters=filters or ())
        print_facts(msgspec.to_builtins(found), output)

    run_http(server, work)


@spread
def holds(*, server: HttpServer, output: OutputOption = Output.TEXT) -> None:
    """List the holds of a running server: readers that keep what they have not read yet."""

    def work(client: "HttpClient") -> None:
        rows = msgspec.to_builtins(client.holds())
        print_rows(rows, HOLD_COLUMNS, output, "Nobody holds anything.", HOLDS_SHOWN)

    run_http(server, work)


def show_info(server: HttpServer, output: Output) -> None:
    """Print what a running server reports of its log."""

    def work(client: "HttpClient") -> None:
        facts: dict[str, Any] = {"server": str(server.endpoint), **client.metrics(limit=0)["log"]}
        print_facts(facts, output, _info_as_text)

    run_http(server, work)


def _info_as_text(facts: Mapping[str, Any]) -> "list[tuple[str, str]]":
    is_durable = facts.get("durable")
    rows = [("server", text_of(facts.get("server"))), ("kept", "on disk" if is_durable else "in memory")]
    rows.append(
        ("offsets", f"{count_text(facts.get('first_offset'))} to {count_text(facts.get('last_offset'))}")
    )
    rows.append(("epoch", text_of(facts.get("epoch"))))
    rows += [("size", size_text(facts["stored_bytes"]))] if "stored_bytes" in facts else []
    rows += [("waits for the disk", size_text(facts["queued_bytes"]))] if "queued_bytes" in facts else []
    rows += [("holds", count_text(facts["holds"]))] if "holds" in facts else []
    rows += [("failing", "yes")] if facts.get("failing") else []
    return rows


def _statement(given: "ClientStatement") -> Statement:
    """The statement of the client as that of a scan, which is printed alike."""
    return Statement(
        after=None if given.after is None else Cursor.decode(given.after),
        next=Cursor.decode(given.next),
        served=given.served,
        missing=tuple(
            Missing(each.topic, each.first, each.last, Reason(each.reason)) for each in given.missing
        ),
        is_at_head=given.is_at_head,
        gaps=tuple(Gap(each.first, each.last, Reason(each.reason)) for each in given.gaps),
    )


def _time(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)
