"""Where reads begin and end, and that the lake and the log are one table."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.client import Gap
from penstock.common.cursor import Position
from penstock.errors import InvalidCursor, InvalidRequest
from penstock.lake import Expired, InvalidLake
from penstock.spark.errors import DataLoss, InvalidOption
from penstock.spark.options import read_options
from penstock.spark.source.lake_scan import LakePart
from penstock.spark.source.log_scan import LogPart, Portion
from penstock.spark.source.planner import Planner
from penstock.spark.source.positions import cursor_at, position_of
from penstock.spark.source.reader import read_part
from penstock.spark.source.schema import log_schema
from tests.doors.web.logs import log_site
from tests.spark.servers import LogServer
from tests.spark.source.lakes import add_files
from tests.spark.source.test_data_loss import ranges_in

ROWS = 400


class Site:
    """A log of 400 rows, of which the lake has those from the 101st to the 300th."""

    def __init__(self, server: LogServer, lake: Path, name: str) -> None:
        self.server, self.lake, self.name = server, lake, name
        before = server.cursor
        topics = [f"{name}/{number}" for number in range(4)]
        receipts = server.publish_numbers(topics, ROWS)
        self.cursors = [before, *(receipt.cursor for receipt in receipts)]
        with server.client() as client:
            self.rows = client.read_log(after=before, filters=[f"{name}/#"]).table().combine_chunks()
        self.times = self.rows.column("published_at").to_pylist()

    def archive(self, first: int, last: int, files: int = 4, **more: Any) -> None:
        """Put rows into the lake, in files of one topic each."""
        (rows,) = self.rows.slice(first, last - first).to_batches()
        batches = [rows.take(pa.array(range(part, rows.num_rows, files))) for part in range(files)]
        given = {"start": self.cursors[first], "filters": (f"{self.name}/#",)}
        add_files(self.lake, batches, self.cursors[last], **{**given, **more})

    def planner(self, **given: str) -> Planner:
        return Planner(read_options(self.options(**given), is_stream=True))

    def options(self, **given: str) -> dict[str, str]:
        mine = {
            "address": self.server.address,
            "filter": f"{self.name}/#",
            "lake": str(self.lake),
            "parallelism": "3",
        }
        return {name: text for name, text in {**mine, **given}.items() if text != "-"}

    def read(self, portion: Portion, **given: str) -> list[int]:
        """The rows of a portion by their numbers, in any order."""
        said = read_options(self.options(**given), is_stream=True)
        schema = log_schema(said.columns)
        batches = [batch for part in portion.parts for batch in read_part(part, said, schema)]
        payloads = (
            pa.Table.from_batches(batches, batches[0].schema).column("payload").to_pylist() if batches else []
        )
        return sorted(int(payload.removeprefix(b'{"number":').removesuffix(b"}")) for payload in payloads)

    def index(self, cursor: str) -> int:
        """How many rows lie before a cursor."""
        offset = position_of(cursor).offset
        return sum(position_of(each).offset <= offset for each in self.cursors[1:])


@pytest.fixture(scope="module")
def site(log_server: LogServer, tmp_path_factory: pytest.TempPathFactory) -> Site:
    made = Site(log_server, tmp_path_factory.mktemp("planning") / "lake", "planning")
    made.archive(100, 300)
    return made


def kinds(portion: Portion) -> set[type]:
    return {type(part) for part in portion.parts}


def test_the_lake_and_the_log_are_one_table(site: Site) -> None:
    planner = site.planner()
    portion = planner.portion(site.cursors[0])
    assert kinds(portion) == {LogPart, LakePart}
    assert [part for part in portion.parts if isinstance(part, LakePart)] != []
    assert site.read(portion) == list(range(ROWS))
    assert portion.rows == ROWS
    assert not portion.gaps


@pytest.mark.parametrize(
    ("first", "last", "sides"),
    [
        (0, 100, {LogPart}),
        (100, 300, {LakePart}),
        (50, 150, {LogPart, LakePart}),
        (150, 250, {LakePart}),
        (299, 301, {LogPart, LakePart}),
        (300, 400, {LogPart}),
        (7, 393, {LogPart, LakePart}),
        (120, 120, set()),
    ],
)
def test_any_stretch_has_its_rows_once(site: Site, first: int, last: int, sides: set[type]) -> None:
    portion = site.planner().portion(site.cursors[first], site.cursors[last])
    assert site.read(portion) == list(range(first, last))
    assert kinds(portion) == sides
    assert position_of(portion.until).offset == position_of(site.cursors[last]).offset


def test_limits_cut_a_stretch_into_portions_that_meet(site: Site) -> None:
    planner, place, seen = site.planner(), site.cursors[0], []
    while site.index(place) < ROWS:
        portion = planner.portion(place, limit_rows=60)
        rows = site.read(portion)
        assert 0 < len(rows) <= 60
        assert portion.rows <= 60
        seen += rows
        place = portion.until
    assert seen == list(range(ROWS))


def test_files_that_were_merged_are_cut_by_their_rows(
    log_server: LogServer, tmp_path: Path, name: str
) -> None:
    site = Site(log_server, tmp_path / "lake", name)
    rows = site.rows.filter(
        pc.equal(pc.bit_wise_and(site.rows.column("sequence"), 3), 0)
    )  # few of many offsets
    add_files(site.lake, rows.combine_chunks().to_batches(), site.cursors[ROWS], start=site.cursors[0])
    planner, place, sizes = site.planner(address=""), site.cursors[0], []
    while site.index(place) < ROWS:
        portion = planner.portion(place, limit_rows=30)
        sizes.append(len(site.read(portion)))
        place = portion.until
    assert sizes == [30, 30, 30, 10]


def test_a_file_that_is_gone_is_told_what_to_do(log_server: LogServer, tmp_path: Path, name: str) -> None:
    site = Site(log_server, tmp_path / "lake", name)
    site.archive(0, 200)
    portion = site.planner().portion(site.cursors[0])
    (site.lake / "messages" / "2.parquet").unlink()
    with pytest.raises(InvalidLake, match="run it again"):
        site.read(portion)


def test_a_limit_by_bytes_gets_on_however_small_it_is(site: Site) -> None:
    planner, place, seen = site.planner(), site.cursors[0], []
    while site.index(place) < ROWS:
        portion = planner.portion(place, limit_bytes=1)
        seen += site.read(portion)
        assert position_of(portion.until).offset > position_of(place).offset
        place = portion.until
    assert seen == list(range(ROWS))


def test_the_lake_alone_needs_no_server(site: Site) -> None:
    planner = site.planner(address="")
    begin, end = planner.cursor("earliest"), planner.cursor("latest")
    assert (site.index(begin), site.index(end)) == (100, 300)
    assert site.read(planner.portion(begin), address="") == list(range(100, 300))
    assert planner.lag(site.cursors[200])[1] >= 100
    assert planner.lag(end) == (end, 0)


def test_the_lake_alone_has_nothing_before_it_or_behind_it(site: Site) -> None:
    planner = site.planner(address="")
    with pytest.raises(InvalidCursor, match="no address of a server is given"):
        planner.portion(site.cursors[99])
    with pytest.raises(InvalidCursor, match="ends after the end of the lake"):
        planner.portion(site.cursors[150], site.cursors[301])
    with pytest.raises(InvalidRequest, match="ends before it begins"):
        planner.portion(site.cursors[200], site.cursors[150])


def test_places_are_found_before_the_lake_in_it_and_behind_it(site: Site) -> None:
    planner = site.planner()
    with site.server.client() as client:
        assert planner.cursor("earliest") == client.position("earliest").cursor
        assert planner.cursor("latest") == client.position("latest").cursor
    for row in (5, 100, 173, 299, 300, 350):
        found = site.index(planner.cursor(site.times[row]))
        assert site.times[found] == site.times[row]
        assert found == 0 or site.times[found - 1] < site.times[row]
    later = site.times[-1] + timedelta(seconds=1)
    assert site.index(planner.cursor(later)) == ROWS
    assert site.index(site.planner(address="").cursor(later)) == 300
    assert site.index(site.planner(address="").cursor(datetime(2000, 1, 1, tzinfo=UTC))) == 100


def test_topics_are_chosen_in_the_lake_as_in_the_log(site: Site) -> None:
    given = {"filter": f"{site.name}/1,{site.name}/3", "columns": "payload"}
    portion = site.planner(**given).portion(site.cursors[0])
    assert site.read(portion, **given) == [row for row in range(ROWS) if row % 4 in (1, 3)]


def test_a_lake_without_the_topics_that_are_asked_for_is_refused(site: Site) -> None:
    with pytest.raises(InvalidOption, match=f"this lake has the topics {site.name}/#, which do not cover #"):
        site.planner(filter="#")


def test_a_lake_that_is_not_there_is_refused(site: Site, tmp_path: Path) -> None:
    with pytest.raises(InvalidLake, match="there is no lake here"):
        site.planner(lake=str(tmp_path / "none"))


def test_a_cursor_of_another_log_is_refused(site: Site) -> None:
    other = cursor_at(Position("ab" * 8, 1, 0), 1)
    with pytest.raises(InvalidCursor, match="another log"):
        site.planner().portion(other)


def test_the_lag_counts_what_is_in_the_lake_too(site: Site) -> None:
    planner = site.planner()
    with site.server.client() as client:
        head = client.position("latest").cursor
    for row in (350, 300, 200, 0):  # others may have published since, of which the log does not know yet
        found, rows = planner.lag(site.cursors[row])
        assert found == head
        assert rows >= ROWS - row


def test_the_lag_counts_what_the_log_has_before_the_lake(site: Site) -> None:
    planner = site.planner()
    (_, before), (_, within) = (planner.lag(site.cursors[row]) for row in (0, 100))
    assert before >= within + 100


def test_what_is_in_the_lake_need_not_stay_in_the_log(site: Site) -> None:
    planner = site.planner()
    assert site.index(planner.release_point(site.cursors[150])) == 300
    assert planner.release_point(site.cursors[350]) == site.cursors[350]
    assert planner.release_point(site.cursors[50]) == site.cursors[50]
    assert site.planner(lake="-").release_point(site.cursors[150]) == site.cursors[150]


def test_the_cut_moves_when_the_lake_grows(log_server: LogServer, tmp_path: Path, name: str) -> None:
    site = Site(log_server, tmp_path / "lake", name)
    site.archive(0, 200)
    planner = site.planner()
    assert kinds(planner.portion(site.cursors[150])) == {LakePart, LogPart}
    site.archive(200, 400, start=None)
    portion = planner.portion(site.cursors[150])
    assert kinds(portion) == {LakePart}
    assert site.read(portion) == list(range(150, 400))


def test_a_lake_in_which_nothing_is_yet_leaves_everything_to_the_log(
    log_server: LogServer, tmp_path: Path, name: str
) -> None:
    site = Site(log_server, tmp_path / "lake", name)
    add_files(site.lake, [], "", filters=(f"{name}/#",))
    assert site.read(site.planner().portion(site.cursors[0])) == list(range(ROWS))
    with pytest.raises(InvalidCursor, match="nothing is archived yet"):
        site.planner(address="").cursor("earliest")


def test_what_the_lake_declares_missing_is_a_loss(log_server: LogServer, tmp_path: Path, name: str) -> None:
    site = Site(log_server, tmp_path / "lake", name)
    end = position_of(site.cursors[300])
    lost = [position_of(site.cursors[row]).offset for row in (100, 120)]
    at = {"partition": {"date": "2026-01-31"}, "rows": 20, "bytes": 1, "at": 1}
    gone = Expired(first_offset=lost[0] + 1, last_offset=lost[1], **at)  # type: ignore[arg-type]
    add_files(
        site.lake,
        site.rows.slice(130, 170).to_batches(),
        cursor_at(end, end.offset),
        start=site.cursors[100],
        filters=(f"{name}/#",),
        gaps=[Gap(lost[1] + 1, lost[1] + 10, "retention")],
        expired=[gone],
    )
    planner = site.planner()
    portion = planner.portion(site.cursors[90])
    with pytest.raises(
        DataLoss, match=rf"{lost[0] + 1} to {lost[1]} were removed .* \(expired\), and 1 more"
    ):
        planner.accept(portion)
    planner.accept(planner.portion(site.cursors[130]))
    accepting = {"failOnDataLoss": "false", "missing": str(tmp_path / "missing")}
    site.planner(**accepting).accept(portion)
    assert [reason for _, _, reason in ranges_in(tmp_path / "missing")] == ["expired", "retention"]
    assert site.read(portion) == [*range(90, 100), *range(130, 400)]


def test_what_was_removed_before_a_query_began_is_no_loss_to_it(
    log_server: LogServer, tmp_path: Path, name: str
) -> None:
    site = Site(log_server, tmp_path / "lake", name)
    first, last = (position_of(site.cursors[row]).offset for row in (0, 150))
    at = {"partition": {"date": "2026-01-31"}, "rows": 50, "bytes": 1, "at": 1}
    # The clock went back over midnight: the day that was removed began before and ended behind live rows.
    gone = Expired(first_offset=first + 1, last_offset=last, **at)  # type: ignore[arg-type]
    site.archive(100, 300, expired=[gone])
    planner = site.planner(address="")
    begin = planner.cursor("earliest")
    half = planner.portion(begin, limit_rows=25)
    planner.accept(half)
    planner.accept(planner.portion(half.until))
    later = site.planner(address="")
    with pytest.raises(DataLoss, match="expired"):  # whoever began before wanted these
        later.accept(later.portion(begin))


async def test_what_left_the_log_after_the_last_look_is_found_in_the_lake(tmp_path: Path, name: str) -> None:
    async with log_site(tmp_path / "data") as site:
        address, lake = str(site.client.base_url), tmp_path / "lake"
        for batch in range(3):
            await site.publish(f"{name}/{batch}", *[b"%d" % number for number in range(10)])
            site.seal()
        rows = (await site.read(filter=f"{name}/#")).batches
        add_files(lake, rows[:1], site.cursor(10), start=site.cursor(0))
        options = read_options({"address": address, "filter": f"{name}/#", "lake": str(lake)}, is_stream=True)
        planner = await asyncio.to_thread(Planner, options)
        assert kinds(await asyncio.to_thread(planner.portion, site.cursor(10))) == {LogPart}
        add_files(lake, rows[1:2], site.cursor(20))
        await site.trim(1)
        portion = await asyncio.to_thread(planner.portion, site.cursor(10))
        assert not portion.gaps
        assert kinds(portion) == {LakePart, LogPart}
