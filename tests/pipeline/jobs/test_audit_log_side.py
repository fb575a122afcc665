"""What the log still has, read beside the lake."""

import pytest

from penstock.errors import InvalidRequest
from penstock.pipeline.jobs.audit.evidence import GAP, READ, RUN
from penstock.pipeline.jobs.audit.log_side import LogPart, LogSide, plan_parts
from penstock.pipeline.jobs.audit.runs import Stretch
from penstock.pipeline.source.connection import Connection
from penstock.pipeline.source.offsets import position_of
from tests.pipeline.servers import LogServer


@pytest.fixture
def connection(log_server: LogServer) -> Connection:
    return Connection(address=log_server.address)


def parts_of(connection: Connection, cursor: str, after: int, filters: tuple[str, ...] = ()) -> list[LogPart]:
    place = position_of(cursor)
    return plan_parts(connection, place.log_id, cursor, filters, Stretch(after, place.offset), 4)


def test_the_log_is_runs_and_how_far_it_was_read(
    log_server: LogServer, connection: Connection, name: str
) -> None:
    receipts = log_server.publish_numbers([f"{name}/a", f"{name}/b"], 100)
    after, until = position_of(receipts[0].cursor).offset - 1, position_of(receipts[-1].cursor)
    filters = (f"{name}/#",)
    stretch = Stretch(after, until.offset)
    side = LogSide(connection=connection, filters=filters, stretch=stretch)
    parts = parts_of(connection, receipts[-1].cursor, after, filters)
    seen = [each for part in parts for each in side.look(part)]
    assert position_of(parts[0].after).offset == after
    assert position_of(parts[-1].until).offset == until.offset
    runs = [each for each in seen if each.kind == RUN]
    assert {each.topic: (each.first, each.last, each.is_inside) for each in runs} == {
        f"{name}/a": (1, 50, True),
        f"{name}/b": (1, 50, True),
    }
    read = [each for each in seen if each.kind == READ]
    assert [each.first_offset for each in read] == [position_of(part.after).offset + 1 for part in parts]
    assert sum(each.first or 0 for each in read) == 100
    assert not [each for each in seen if each.kind == GAP]


def test_there_is_nothing_to_compare_when_the_log_begins_behind_the_range(
    log_server: LogServer, connection: Connection
) -> None:
    cursor = log_server.cursor
    place = position_of(cursor)
    assert plan_parts(connection, place.log_id, cursor, (), Stretch(place.offset, place.offset), 4) == []


def test_what_is_behind_the_cursor_of_the_lake_is_not_compared(
    log_server: LogServer, connection: Connection, name: str
) -> None:
    receipts = log_server.publish_numbers([f"{name}/a"], 9)
    place = position_of(receipts[4].cursor)
    stretch = Stretch(place.offset - 3, place.offset + 3)
    parts = plan_parts(connection, place.log_id, receipts[4].cursor, (), stretch, 1)
    assert [position_of(part.until).offset for part in parts] == [place.offset]


def test_the_log_of_somebody_else_is_refused(log_server: LogServer, connection: Connection) -> None:
    with pytest.raises(InvalidRequest, match="this lake is of the log aabbccddeeff0011, and the server has"):
        plan_parts(connection, "aabbccddeeff0011", log_server.cursor, (), Stretch(0, 9), 4)
