"""The log over HTTP: one Arrow stream, everything that was asked for, and the truth about what is missing."""

import asyncio
import http.client
import io
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import httpx
import polars
import pyarrow as pa
import pytest
from argon2 import PasswordHasher
from msgspec.structs import replace

from penstock.core.ports.archive import ArrowSpan
from penstock.core.settings import AccessSettings
from penstock.doors.web.reading import bulk
from penstock.errors import QuotaExceeded, StorageUnavailable
from penstock.storage.disk.log import DiskLog
from penstock.storage.disk.pieces import arrow_batches
from penstock.storage.disk.pieces.sealing_process import SealingProcess, SealRequest, SealResult, seal
from penstock.storage.disk.rocksdb.layout import LOG as SEALED
from penstock.storage.disk.rocksdb.layout import ROWS, offset_key
from penstock.storage.disk.rocksdb.store import Changes
from penstock.wire.arrow import cut
from tests.doors.serving import Start, client_of, port_of
from tests.doors.web.logs import KEEP_ALL, LOG, LogSite, answer_in, log_site
from tests.support.waiting import until


@pytest.fixture(autouse=True)
def sealing_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make batches in this process: the one that makes them otherwise takes long to start."""

    def seal_here(_: SealingProcess, order: SealRequest) -> SealResult:
        return seal(order)

    monkeypatch.setattr(SealingProcess, "seal", seal_here)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[LogSite]:
    async with log_site(tmp_path / "data") as site:
        yield site


async def fill(site: LogSite, *, count: int = 6) -> None:
    """Two batches of three messages each, and frames behind them."""
    for number in range(1, count + 1):
        await site.publish(f"plant/{'ab'[number % 2]}", b"payload %d" % number)
        if number in (3, 6):
            site.seal()


def put(site: LogSite, family: str, offset: int, value: bytes) -> None:
    changes = Changes()
    changes.put(family, offset_key(offset), value)
    site.disk._store.write(changes, sync=False)


# What is served


async def test_the_whole_log_is_one_stream_with_a_statement_at_its_end(site: LogSite) -> None:
    await fill(site, count=8)
    found = await site.read()
    assert found.headers["content-type"] == "application/vnd.apache.arrow.stream"
    assert found.headers["penstock-after"] == site.cursor(0)
    assert found.offsets == list(range(1, 9))
    assert [row["payload"] for row in found.rows] == [b"payload %d" % number for number in range(1, 9)]
    assert found.statement == {
        "after": site.cursor(0),
        "next": site.cursor(8),
        "served": 8,
        "is_complete": True,
        "is_at_head": True,
        "missing": [],
        "gaps": [],
    }


async def test_sealed_batches_leave_as_they_are_stored(site: LogSite) -> None:
    await fill(site)
    response = await site.get()
    (stored,) = site.disk._store.get(SEALED, [offset_key(4)])
    assert stored is not None
    parts = cut(stored)
    assert response.content.startswith(bytes(parts.schema))
    assert bytes(parts.body) in response.content
    assert response.content.count(bytes(parts.schema)) == 1


async def test_an_empty_log_is_an_empty_stream_with_a_statement(site: LogSite) -> None:
    found = await site.read()
    assert (found.rows, found.statement["next"], found.statement["is_at_head"]) == ([], site.cursor(0), True)


async def test_every_reader_of_arrow_takes_the_stream(site: LogSite) -> None:
    for part in range(3):  # each batch has names of its own, and so dictionaries
        names = [f"part-{part}/{number}" for number in range(5 * (3 - part))]
        await asyncio.gather(*(site.publish(name, name.encode()) for name in names))
        if part < 2:
            site.seal()
    content = (await site.get()).content
    table = pa.ipc.open_stream(content).read_all()
    topics = table.column("topic").cast(pa.string()).to_pylist()
    assert sorted(topics) == sorted(value.decode() for value in table.column("payload").to_pylist())
    assert topics == [value.decode() for value in table.column("payload").to_pylist()]
    frame = polars.read_ipc_stream(io.BytesIO(content))
    assert frame["topic"].cast(polars.String).to_list() == topics
    assert frame["offset"].to_list() == table.column("offset").to_pylist()
    reader = pa.ipc.open_stream(content)
    found = duckdb.sql("select topic from reader")
    assert found is not None
    assert found.fetchall() == [(topic,) for topic in topics]
    del reader


async def test_topics_are_chosen_by_filters(site: LogSite) -> None:
    await fill(site)
    assert (await site.read(filter="plant/a")).offsets == [2, 4, 6]
    assert (await site.read(filter=["plant/a", "+/b"])).offsets == [1, 2, 3, 4, 5, 6]
    assert (await site.read(filter="nothing/#")).offsets == []


async def test_reserved_topics_are_served_only_to_those_who_name_them(site: LogSite) -> None:
    await site.publish("plant/a", b"1")
    await site.publish("$penstock/note", b"2")
    assert (await site.read()).offsets == [1]
    assert (await site.read(filter="#")).offsets == [1]
    assert (await site.read(filter="$penstock/#")).offsets == [2]
    assert (await site.read(filter=["#", "$penstock/#"])).offsets == [1, 2]


async def test_reserved_topics_in_a_batch_are_left_out(site: LogSite) -> None:
    for topic in ("plant/a", "$penstock/note", "plant/b"):
        await site.publish(topic, b"1")
    site.seal()
    assert (await site.read()).offsets == [1, 3]
    assert (await site.read(filter=["$penstock/+"])).offsets == [2]


async def test_a_batch_is_not_unpacked_when_a_filter_wants_all_of_it(
    site: LogSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(site)
    monkeypatch.setattr(arrow_batches, "decode_batch", None)
    assert (await site.read(filter="plant/#")).offsets == [1, 2, 3, 4, 5, 6]


async def test_columns_come_in_the_order_they_are_asked_for(site: LogSite) -> None:
    await fill(site, count=7)
    found = await site.read(columns="payload,topic")
    assert [list(row.values()) for row in found.rows[:2]] == [
        [b"payload 1", "plant/b"],
        [b"payload 2", "plant/a"],
    ]
    assert len(found.rows) == 7
    assert {tuple(batch.schema.names) for batch in found.batches} == {("payload", "topic")}
    assert pa.ipc.open_stream((await site.get(columns="qos", limit_rows=1)).content).schema.names == ["qos"]


async def test_a_limit_of_rows_is_kept_and_the_statement_goes_on_behind_it(site: LogSite) -> None:
    await fill(site, count=8)
    offsets, after = [], site.cursor(0)
    for limit_rows in (2, 2, 3, 5):
        found = await site.read(after=after, limit_rows=limit_rows)
        offsets.append(found.offsets)
        after = found.statement["next"]
        assert found.statement["is_complete"]
        assert found.statement["is_at_head"] == (len(offsets) == 4)
    assert offsets == [[1, 2], [3, 4], [5, 6, 7], [8]]


async def test_it_ends_at_a_cursor(site: LogSite) -> None:
    await fill(site, count=8)
    found = await site.read(after=site.cursor(1), until=site.cursor(5))
    assert (found.offsets, found.statement["next"]) == ([2, 3, 4, 5], site.cursor(5))
    assert not found.statement["is_at_head"]
    assert (await site.read(after=site.cursor(5), until=site.cursor(5))).offsets == []


async def test_it_begins_at_either_end(site: LogSite) -> None:
    await fill(site)
    assert (await site.read(from_="earliest")).offsets == [1, 2, 3, 4, 5, 6]
    latest = await site.read(from_="latest")
    assert (latest.offsets, latest.statement["next"]) == ([], site.cursor(6))


async def test_it_begins_at_a_time(site: LogSite) -> None:
    await fill(site, count=8)
    rows = (await site.read()).rows
    for row in rows:
        published = row["published_at"]
        later = [each["offset"] for each in rows if each["published_at"] >= published]
        assert (await site.read(from_=published.isoformat())).offsets == later
    assert (await site.read(from_=(published + timedelta(microseconds=1)).isoformat())).offsets == []
    assert (await site.read(from_="1999-12-31T23:59:59Z")).offsets == [row["offset"] for row in rows]


async def test_messages_that_are_not_committed_yet_are_not_served_but_their_cursors_are_taken(
    site: LogSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.publish("plant/a", b"1")
    monkeypatch.setattr(site.server.broker.history._sequencer, "head", 5)  # subscribers may have got these
    found = await site.read(after=site.cursor(4))
    assert (found.offsets, found.statement["next"]) == ([], site.cursor(4))
    assert (await site.read(until=site.cursor(4))).statement["next"] == site.cursor(1)
    assert await site.refused(after=site.cursor(6)) == (400, "invalid-cursor")


# The same as the command


@pytest.mark.parametrize("seed", range(4))
async def test_it_is_what_the_command_reads(site: LogSite, seed: int) -> None:
    chance = random.Random(seed)
    topics = [f"{chance.choice('abc')}/{chance.choice('xyz')}" for _ in range(6)] + ["$penstock/x"]
    for number in range(40):
        payloads = [chance.randbytes(chance.choice((0, 3, 500))) for _ in range(chance.randint(1, 4))]
        await site.publish(chance.choice(topics), *payloads)
        if number in (10, 11, 30):
            site.seal()
    for filters in ((), ("a/#",), ("+/x", "b/y"), ("$penstock/#", "#")):
        rows, statement = site.read_by_command(filters=filters or ("#",))
        found = await site.read(filter=filters)
        assert found.rows == rows
        assert found.statement["next"] == statement.next.encode()
        limit = chance.randint(1, len(rows) + 1)
        assert (await site.read(filter=filters, limit_rows=limit)).rows == rows[:limit]


@pytest.mark.parametrize("seed", range(2))
async def test_who_reads_while_others_publish_seal_and_trim_gets_everything_or_is_told(
    site: LogSite, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "CHUNK_BYTES", 3_000)
    chance = random.Random(seed)
    published: dict[int, tuple[str, bytes]] = {}
    is_over = asyncio.Event()

    async def publish() -> None:
        for number in range(120):
            topic = f"t/{chance.randrange(5)}"
            payloads = [chance.randbytes(60) for _ in range(chance.randint(1, 5))]
            first = site.server.broker.history.head + 1
            published.update({first + at: (topic, payload) for at, payload in enumerate(payloads)})
            await site.publish(topic, *payloads)
            if number % 7 == 6:
                await asyncio.to_thread(site.disk._sealer.seal_now)
            if number % 20 == 19:
                await site.trim(site.disk._index.bytes * 2 // 3)
        is_over.set()

    async def follow(limit_rows: int | None) -> dict[int, tuple[str, bytes] | None]:
        """What was served by offset; None for what is said to have left."""
        seen: dict[int, tuple[str, bytes] | None] = {}
        after = site.cursor(0)
        while True:
            was_over = is_over.is_set()
            found = await site.read(after=after, **({} if limit_rows is None else {"limit_rows": limit_rows}))
            told: dict[int, tuple[str, bytes] | None] = {
                row["offset"]: (row["topic"], row["payload"]) for row in found.rows
            }
            assert list(told) == sorted(told)
            for first, last, reason in found.gaps:
                assert reason == "retention"
                told |= dict.fromkeys(range(first, last + 1))
            assert min(told, default=10_000) > max(seen, default=0)
            seen |= told
            after = found.statement["next"]
            if was_over and found.statement["is_at_head"]:
                return seen

    _, one, other = await asyncio.gather(publish(), follow(None), follow(9))
    for seen in (one, other):
        assert seen.keys() == published.keys()
        assert all(message in (None, published[offset]) for offset, message in seen.items())
    rows, _ = site.read_by_command(filters=("#",))
    assert (await site.read()).rows == rows


# What is missing


async def test_a_cursor_beyond_what_its_epoch_committed_is_cut_back(tmp_path: Path) -> None:
    async with log_site(tmp_path / "data") as first:
        await fill(first, count=4)
        epoch = first.disk.epoch
    async with log_site(tmp_path / "data") as site:
        await site.publish("plant/c", b"new")
        found = await site.read(after=site.cursor(7, epoch))
        assert found.headers["penstock-after"] == found.statement["after"] == site.cursor(4)
        assert (found.offsets, found.gaps) == ([5], [(5, 7, "lost-uncommitted")])
        assert not found.statement["is_complete"]
        planned = await site.read(after=site.cursor(2, epoch), until=site.cursor(9, epoch))
        assert (planned.offsets, planned.gaps) == ([3, 4], [(5, 9, "lost-uncommitted")])
        both = await site.read(after=site.cursor(6, epoch), until=site.cursor(9, epoch))
        assert (both.offsets, both.gaps) == ([], [(5, 6, "lost-uncommitted"), (7, 9, "lost-uncommitted")])
        onward = await site.read(after=site.cursor(7, epoch), until=site.cursor(5))
        assert (onward.offsets, onward.gaps) == ([5], [(5, 7, "lost-uncommitted")])


async def test_what_retention_took_is_told_to_who_asks_for_it(site: LogSite) -> None:
    await fill(site)
    await site.trim(1)
    assert site.disk.first_offset == 4
    found = await site.read(after=site.cursor(1))
    assert (found.offsets, found.gaps) == ([4, 5, 6], [(2, 3, "retention")])
    old = await site.read(from_="1999-12-31T23:59:59Z")
    assert (old.offsets, old.gaps) == ([4, 5, 6], [(1, 3, "retention")])
    earliest = await site.read(from_="earliest")
    assert (earliest.offsets, earliest.gaps) == ([4, 5, 6], [])


@pytest.mark.parametrize(("family", "first", "last"), [(SEALED, 4, 6), (ROWS, 8, 8)])
@pytest.mark.parametrize("parameters", [{}, {"filter": "plant/#"}, {"columns": "offset"}])
async def test_what_is_damaged_is_told_and_the_rest_is_served(
    site: LogSite, family: str, first: int, last: int, parameters: dict[str, str]
) -> None:
    await fill(site, count=9)
    put(site, family, first, b"nonsense")
    found = await site.read(**parameters)
    assert found.offsets == [offset for offset in range(1, 10) if not first <= offset <= last]
    assert found.gaps == [(first, last, "damaged")]
    assert not found.statement["is_complete"]


async def test_damage_in_the_files_is_told(tmp_path: Path) -> None:
    async with log_site(tmp_path / "data") as first:
        await fill(first, count=6)
        first.disk._store.flush(SEALED)
    tables = sorted((tmp_path / "data").rglob("*.sst"), key=lambda path: path.stat().st_size)
    content = bytearray(tables[-1].read_bytes())
    content[300:400] = random.Random(1).randbytes(100)
    tables[-1].write_bytes(content)
    async with log_site(tmp_path / "data") as site:
        found = await site.read()
        rows, statement = site.read_by_command()
        assert (found.rows, found.gaps) == (rows, [(g.first, g.last, g.reason) for g in statement.gaps])
        assert found.gaps


async def test_gaps_that_meet_are_told_as_one(site: LogSite, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(6):
        await site.publish("plant/a", b"%d" % number)
    for offset in (2, 3, 4):
        put(site, ROWS, offset, b"nonsense")
    arrow = site.disk.arrow

    async def read_one(after: int, until: int, *arguments: Any) -> ArrowSpan:
        return await arrow(after, after + 1, *arguments)

    monkeypatch.setattr(site.disk, "arrow", read_one)
    found = await site.read()
    assert (found.offsets, found.gaps) == ([1, 5, 6], [(2, 4, "damaged")])


# What is refused


async def test_what_makes_no_sense_is_refused(site: LogSite) -> None:
    await fill(site, count=2)
    here, earlier = site.cursor(2), site.cursor(1)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"after": "nonsense"}, "invalid-cursor"),
        ({"until": "nonsense"}, "invalid-cursor"),
        ({"after": here, "until": earlier}, "invalid-request"),
        ({"after": here, "from_": "earliest"}, "invalid-request"),
        ({"from_": "yesterday"}, "invalid-request"),
        ({"columns": "topic,colour"}, "invalid-request"),
        ({"columns": "topic,topic"}, "invalid-request"),
        ({"columns": ""}, "invalid-request"),
        ({"limit_rows": 0}, "invalid-request"),
        ({"limit_rows": "many"}, "invalid-request"),
        ({"limit_rows": 2**63}, "invalid-request"),
        ({"filter": "a/#/b"}, "invalid-filter"),
        ({"filter": "$share/group/a"}, "invalid-filter"),
        ({"filter": ""}, "invalid-filter"),
        ({"colour": "red"}, "invalid-request"),
    ]
    for parameters, code in cases:
        assert await site.refused(**parameters) == (400, code), parameters


async def test_a_cursor_of_another_log_is_refused(site: LogSite) -> None:
    other = site.cursor(0, log_id="00" * 8)
    assert await site.refused(after=other) == (400, "invalid-cursor")
    assert await site.refused("/position", after=other) == (400, "invalid-cursor")
    assert await site.refused("/ranges", until=other) == (400, "invalid-cursor")


async def test_a_cursor_of_an_epoch_to_come_is_refused(site: LogSite) -> None:
    assert await site.refused(after=site.cursor(0, site.disk.epoch + 1)) == (400, "invalid-cursor")


async def test_a_server_without_a_data_directory_has_no_log(start: Start) -> None:
    async with client_of(await start()) as client:
        for path in ("", "/position", "/ranges", "/holds"):
            response = await client.get(LOG + path)
            assert (response.status_code, response.json()["code"]) == (404, "no-log")


async def test_who_does_not_read_arrow_is_told(site: LogSite) -> None:
    response = await site.client.get(LOG, headers={"accept": "text/html"})
    assert (response.status_code, response.json()["code"]) == (406, "not-acceptable")
    for accept in ("*/*", "text/html, application/vnd.apache.arrow.stream;q=0.5"):
        assert (await site.client.get(LOG, headers={"accept": accept})).status_code == 200


# Rights

HASH = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1).hash("secret")
ACL = "user ann\nsubscribe plant/+\n\nuser root\nsubscribe #\nsubscribe $SYS/#\n"
ANN, ROOT = ("ann", "secret"), ("root", "secret")


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[LogSite]:
    """A log of which ann may read a part, and root everything."""
    (tmp_path / "users").write_text(f"ann:{HASH}\nroot:{HASH}\n")
    (tmp_path / "acl").write_text(ACL)
    access = AccessSettings(password_file=str(tmp_path / "users"), acl_file=str(tmp_path / "acl"))
    async with log_site(tmp_path / "data", access=access) as site:
        yield site


async def test_a_filter_that_reaches_further_than_the_rights_is_refused(guarded: LogSite) -> None:
    await fill(guarded)
    client = guarded.client
    client.auth = ANN
    assert (await guarded.read(filter="plant/+")).offsets == [1, 2, 3, 4, 5, 6]
    assert (await guarded.read(filter="plant/a")).offsets == [2, 4, 6]
    for filters in ((), ("#",), ("plant/#",), ("plant/a", "garden/a"), ("$SYS/#",)):
        for path in ("", "/ranges"):
            assert await guarded.refused(path, filter=filters) == (403, "not-authorized")
    assert await guarded.refused("/position", after=guarded.cursor(0)) == (403, "not-authorized")
    assert (await guarded.get("/position", after=guarded.cursor(0), filter="plant/a")).status_code == 200
    assert await guarded.refused("/position") == (403, "not-authorized")
    assert await guarded.refused("/position", at="earliest") == (403, "not-authorized")
    assert (await guarded.get("/position", filter="plant/+")).status_code == 200
    client.auth = ROOT
    assert (await guarded.get("/position")).status_code == 200
    assert (await guarded.read()).offsets == [1, 2, 3, 4, 5, 6]
    client.auth = httpx.Auth()  # none
    assert await guarded.refused() == (401, "bad-credentials")


@pytest.mark.parametrize("is_sealed", [False, True])
@pytest.mark.parametrize("columns", [None, "payload,topic,client_id"])
async def test_nobody_is_told_the_names_of_what_it_may_not_read(
    guarded: LogSite, is_sealed: bool, columns: str | None
) -> None:
    payloads = [b"%d" % number for number in range(50)]
    await guarded.publish("plant/a", *payloads)
    await guarded.publish("secret/topic", b"x")
    if is_sealed:
        guarded.seal()
    guarded.client.auth = ANN
    chosen = {} if columns is None else {"columns": columns}
    page = "/api/v1/topics/plant/a/messages"
    responses = [
        await guarded.get(filter="plant/+", **chosen),
        await guarded.get(filter="plant/+", limit_rows=40, **chosen),
        await guarded.get(filter="plant/+", until=guarded.cursor(50), **chosen),
        await guarded.client.get(page, params={"format": "arrow", "last": "40"}),
    ]
    for response, count in zip(responses, (50, 40, 50, 40), strict=True):
        found = answer_in(response.content)
        assert len(found.rows) == count
        told = {name for batch in found.batches for name in batch.column("topic").dictionary.to_pylist()}
        assert told == {"plant/a"}


async def test_who_loses_the_right_while_reading_is_cut_off(
    guarded: LogSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "CHUNK_BYTES", 1)
    await fill(guarded, count=9)
    guarded.client.auth = ANN
    arrow, count = guarded.disk.arrow, 0

    async def read_then_lose(*arguments: Any) -> ArrowSpan:
        nonlocal count
        count += 1
        if count == 2:
            (tmp_path / "acl").write_text(ACL.replace("plant", "garden"))
            guarded.server.reload()
        return await arrow(*arguments)

    monkeypatch.setattr(guarded.disk, "arrow", read_then_lose)
    with pytest.raises(httpx.RemoteProtocolError):
        await guarded.get(filter="plant/+")
    assert await guarded.refused(filter="plant/+") == (403, "not-authorized")


# Many and slow readers


async def fill_large(site: LogSite, megabytes: int = 24) -> None:
    """So much that no socket takes it."""
    chance = random.Random(1)
    for _ in range(megabytes):
        await site.publish("plant/a", *(chance.randbytes(1 << 18) for _ in range(4)))


class Counted:
    """Counts what is read of the log, in bytes."""

    def __init__(self, disk: DiskLog, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        self._arrow = disk.arrow
        monkeypatch.setattr(disk, "arrow", self.arrow)

    async def arrow(self, *arguments: Any) -> ArrowSpan:
        span = await self._arrow(*arguments)
        self.bytes += sum(map(len, span.streams))
        return span

    async def settled(self) -> int:
        """What has been read when nothing more is."""
        before = -1
        while before < self.bytes:
            before = self.bytes
            await asyncio.sleep(0.2)
        return before


async def test_who_reads_slowly_makes_the_server_wait_and_gets_everything(
    site: LogSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill_large(site)
    counted = Counted(site.disk, monkeypatch)
    async with site.opened() as response:
        assert await counted.settled() < 16 << 20
        content = await response.aread()
    assert answer_in(content).offsets == list(range(1, 97))


async def test_who_reads_in_bulk_may_pause_for_longer_than_others(tmp_path: Path) -> None:
    async with log_site(tmp_path / "data", log=replace(KEEP_ALL, read_timeout_s=123.0)) as site:
        await fill_large(site)
        async with site.opened() as response:
            door = site.server.http
            await until(
                lambda: any(each.is_full for each in door.connections), "no connection was full", every_s=0
            )
            [connection] = [each for each in door.connections if each.is_full]
            due = connection.check_deadline(door.now())
            assert due is not None
            assert due > door.now() + door.settings.write_timeout_s
            await response.aread()


async def free_seat(site: LogSite) -> httpx.Response:
    """First response of a read that is not refused for want of a seat."""

    async def response() -> httpx.Response | None:
        response = await site.get(limit_rows=1)
        return None if response.status_code == 429 else response

    return await until(response, "no seat became free")


async def test_a_reader_that_goes_away_is_not_read_for_and_frees_its_seat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with log_site(tmp_path / "data", log=replace(KEEP_ALL, max_readers=1)) as site:
        await fill_large(site)
        counted = Counted(site.disk, monkeypatch)
        async with site.opened() as response:
            assert response.status_code == 200
            refused = await site.get()
            assert (refused.status_code, refused.json()["code"]) == (429, "quota-exceeded")
            assert refused.json()["retryable"]
            assert int(refused.headers["retry-after"]) > 0
            assert (await site.get("/position")).status_code == 200
        response = await free_seat(site)
        assert answer_in(response.content).offsets == [1]
        assert await counted.settled() < 16 << 20


async def test_a_seat_is_free_again_after_each_answer_good_or_bad(tmp_path: Path) -> None:
    async with log_site(tmp_path / "data", log=replace(KEEP_ALL, max_readers=1)) as site:
        await fill(site)
        for _ in range(5):
            assert (await site.read()).offsets == [1, 2, 3, 4, 5, 6]
            assert await site.refused(after="nonsense") == (400, "invalid-cursor")


async def test_as_many_read_at_once_as_may(tmp_path: Path) -> None:
    async with log_site(tmp_path / "data", log=replace(KEEP_ALL, max_readers=3)) as site:
        await fill_large(site)
        async with AsyncExitStack() as readers:
            found = [await readers.enter_async_context(site.opened()) for _ in range(4)]
            assert [response.status_code for response in found] == [200, 200, 200, 429]


async def test_one_user_leaves_seats_for_others_and_all_leave_one_for_who_watches(
    tmp_path: Path,
) -> None:
    (tmp_path / "users").write_text("".join(f"{user}:{HASH}\n" for user in ("ann", "bob", "root")))
    (tmp_path / "acl").write_text("user *\nsubscribe #\n\nuser root\nsubscribe $SYS/#\n")
    access = AccessSettings(password_file=str(tmp_path / "users"), acl_file=str(tmp_path / "acl"))
    log = replace(KEEP_ALL, max_readers=4)
    async with log_site(tmp_path / "data", access=access, log=log) as site:
        await fill_large(site)
        async with AsyncExitStack() as readers:

            async def status(user: str) -> int:
                site.client.auth = (user, "secret")
                return (await readers.enter_async_context(site.opened())).status_code

            assert [await status("ann") for _ in range(3)] == [200, 200, 429]
            assert [await status("bob") for _ in range(2)] == [200, 429]
            assert [await status("root") for _ in range(2)] == [200, 429]
        site.client.auth = ("ann", "secret")
        response = await free_seat(site)
        assert response.status_code == 200


def test_a_single_seat_is_for_everyone() -> None:
    seats = bulk.ReaderSlots(lambda: 1)
    with seats.one("ann", is_admin=False), pytest.raises(QuotaExceeded), seats.one("root", is_admin=True):
        pass
    with seats.one("bob", is_admin=False):
        pass


# Errors on the way


@pytest.fixture
def failing(site: LogSite, monkeypatch: pytest.MonkeyPatch) -> LogSite:
    """A log of which the third chunk cannot be read."""
    monkeypatch.setattr(bulk, "CHUNK_BYTES", 1)
    arrow, count = site.disk.arrow, 0

    async def fail_later(*arguments: Any) -> ArrowSpan:
        nonlocal count
        count += 1
        if count == 3:
            raise StorageUnavailable("the disk says no")
        return await arrow(*arguments)

    monkeypatch.setattr(site.disk, "arrow", fail_later)
    return site


async def test_an_answer_that_cannot_be_finished_is_never_taken_for_a_whole_one(failing: LogSite) -> None:
    await fill(failing, count=9)
    port = port_of(failing.server, "http")

    def read_by_pyarrow() -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("GET", LOG)
        response = connection.getresponse()
        assert response.status == 200
        with closing(connection), pa.ipc.open_stream(response) as reader:
            return int(reader.read_all().num_rows)

    with pytest.raises((http.client.IncompleteRead, OSError)):
        await asyncio.to_thread(read_by_pyarrow)


async def test_the_same_is_seen_by_other_clients(failing: LogSite) -> None:
    await fill(failing, count=9)
    with pytest.raises(httpx.RemoteProtocolError):
        await failing.get()


async def test_an_error_before_the_answer_begins_is_told_as_such(
    site: LogSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(site)

    async def fail(*arguments: Any) -> ArrowSpan:
        raise StorageUnavailable("the disk says no")

    monkeypatch.setattr(site.disk, "arrow", fail)
    assert await site.refused() == (503, "storage-unavailable")


# Positions


async def test_positions_are_told_by_name_and_by_time(site: LogSite) -> None:
    await fill(site, count=8)
    await site.trim(1)
    first, last = site.disk.first_offset - 1, 8
    latest = (await site.get("/position")).json()
    assert latest == {
        "cursor": site.cursor(last),
        "offset": last,
        "epoch": site.disk.epoch,
        "log_id": site.disk.log_id,
    }
    assert (await site.get("/position", at="latest")).json() == latest
    assert (await site.get("/position", at="earliest")).json()["offset"] == first
    row = (await site.read(after=site.cursor(last - 1))).rows[0]
    when = row["published_at"]
    found = (await site.get("/position", at=when.isoformat())).json()
    assert (found["offset"], found["time"]) == (last - 1, when.strftime("%Y-%m-%dT%H:%M:%S.%fZ"))
    assert (await site.read(after=found["cursor"])).offsets == [last]
    assert (await site.get("/position", at="1999-01-01")).json()["offset"] == 0
    future = datetime.now(UTC) + timedelta(days=1)
    assert (await site.get("/position", at=future.isoformat())).json()["offset"] == last
    assert await site.refused("/position", at="soon") == (400, "invalid-request")


async def test_how_far_behind_a_cursor_is(site: LogSite) -> None:
    await fill(site, count=6)
    for after, lag_rows in ((0, 6), (3, 3), (6, 0)):
        found = (await site.get("/position", after=site.cursor(after))).json()
        assert found["lag_rows"] == lag_rows
    assert (await site.get("/position", after=site.cursor(0), filter="plant/a")).json()["lag_rows"] == 3
    assert (await site.get("/position", at="earliest", after=site.cursor(6))).json()["lag_rows"] == 0


# Ranges


@pytest.mark.parametrize("parts", [1, 2, 3, 50])
@pytest.mark.parametrize("filter", ["#", "plant/a"])
async def test_ranges_have_everything_once(site: LogSite, parts: int, filter: str) -> None:
    for number in range(12):
        await site.publish(f"plant/{'ab'[number % 2]}", b"%d" % number)
        if number % 2:
            site.seal()
    found = (await site.get("/ranges", parts=parts, filter=filter)).json()
    assert len(found["ranges"]) == min(parts, 6)
    assert (found["after"], found["until"]) == (site.cursor(0), site.cursor(12))
    offsets: list[int] = []
    for each in found["ranges"]:
        answer = await site.read(after=each["after"], until=each["until"], filter=filter)
        assert (len(answer.rows), answer.statement["next"]) == (each["rows"], each["until"])
        offsets += answer.offsets
    assert offsets == (await site.read(filter=filter)).offsets
    assert found["rows"] == len(offsets)


async def test_ranges_end_before_a_limit_of_rows(site: LogSite) -> None:
    await fill(site)
    found = (await site.get("/ranges", limit_rows=4, parts=4)).json()
    assert (found["rows"], found["until"], len(found["ranges"])) == (3, site.cursor(3), 1)
    found = (await site.get("/ranges", after=found["until"], limit_rows=2)).json()
    assert (found["rows"], found["until"]) == (2, site.cursor(5))


async def test_ranges_end_before_a_limit_of_bytes_but_have_one_batch(site: LogSite) -> None:
    await fill(site)
    sizes = [each["bytes"] for each in (await site.get("/ranges", parts=2)).json()["ranges"]]
    for limit_bytes, rows in ((1, 3), (sum(sizes) - 1, 3), (sum(sizes), 6)):
        found = (await site.get("/ranges", limit_bytes=limit_bytes)).json()
        assert (found["rows"], found["until"]) == (rows, site.cursor(rows))
    assert await site.refused("/ranges", limit_bytes=0) == (400, "invalid-request")


async def test_ranges_tell_what_has_left_without_a_look_at_the_rows(site: LogSite) -> None:
    await fill(site)
    await site.trim(1)
    whole = (await site.get("/ranges", after=site.cursor(1), parts=2)).json()
    assert whole["gaps"] == [{"first": 2, "last": 3, "reason": "retention"}]
    assert (whole["after"], whole["until"], whole["rows"]) == (site.cursor(1), site.cursor(6), 3)
    assert (await site.get("/ranges", from_="earliest")).json()["gaps"] == []
    part = (await site.get("/ranges", after=site.cursor(1), until=site.cursor(2))).json()
    assert part["gaps"] == [{"first": 2, "last": 2, "reason": "retention"}]


async def test_ranges_tell_what_a_cursor_had_seen_that_was_never_committed(tmp_path: Path) -> None:
    async with log_site(tmp_path / "data") as first:
        await fill(first, count=4)
        epoch = first.disk.epoch
    async with log_site(tmp_path / "data") as site:
        lost = {"reason": "lost-uncommitted"}
        begin, end = site.cursor(6, epoch), site.cursor(9, epoch)
        assert (await site.get("/ranges", after=begin)).json()["gaps"] == [{"first": 5, "last": 6} | lost]
        ahead = (await site.get("/ranges", after=site.cursor(0), until=end)).json()
        assert (ahead["until"], ahead["gaps"]) == (site.cursor(4), [{"first": 5, "last": 9} | lost])
        portion = (await site.get("/ranges", after=site.cursor(0), until=end, limit_rows=2)).json()
        assert portion["gaps"] == [], "it does not go that far"


async def test_nothing_is_one_range(site: LogSite) -> None:
    await fill(site)
    found = (await site.get("/ranges", from_="latest", parts=4)).json()
    assert found["ranges"] == [{"after": site.cursor(6), "until": site.cursor(6), "rows": 0, "bytes": 0}]
    assert await site.refused("/ranges", parts=0) == (400, "invalid-request")


async def test_a_server_that_is_about_to_stop_takes_no_reader(tmp_path: Path) -> None:
    async with log_site(tmp_path / "data") as site:
        await fill(site)
        assert (await site.read()).offsets == [1, 2, 3, 4, 5, 6]  # over a connection that stays
        site.server.http.is_draining = True
        assert await site.refused() == (503, "shutting-down")
