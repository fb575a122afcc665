"""Rows in chunks: they come out as they went in, and what cannot be published never goes in."""

import pytest

from penstock.core.access.access import OpenAccess
from penstock.core.durability.records import ChunkRecord
from penstock.core.settings import CoreSettings, StageSettings
from penstock.core.staging import packing
from penstock.core.staging.packing import Packing, runs_of, weight_of
from penstock.errors import InvalidRequest, InvalidTopic, NotAuthorized, PenstockError, TooLarge
from penstock.model import Door, Properties
from penstock.runs import Run, bare_shape
from tests.core.staging.stagers import ANYONE, rows_of
from tests.support.samples import make_run

RICH = Properties("text/plain", b"\0\1", "reply/to", None, "id", (("k", "v"), ("k", "ä")))


def pack(*rows: Run, **settings: object) -> list[ChunkRecord]:
    return Packing(CoreSettings(**settings), OpenAccess(), ANYONE).pack(rows).chunks  # type: ignore[arg-type]


def row(topic: str = "a", payload: bytes = b"x", properties: Properties | None = None, **rest: float) -> Run:
    return make_run(topic, payload, properties=properties, **rest)  # type: ignore[arg-type]


def test_rows_come_out_as_they_went_in() -> None:
    rows = [
        row("a", b"", qos=2),
        row("b/c", b"\0\xff", RICH, qos=1),
        row("a", b"x" * 300, RICH, qos=1, retain=True),
        row("a", b"y", ttl=2.5),
        row("ä", b"z", Properties("application/json"), retain=True),
    ]
    (chunk,) = pack(*rows)
    assert chunk.topics == ("a", "b/c", "ä")
    found = runs_of(chunk)
    assert [(run.topic, run.payload(), run.properties, run.ttl) for run in found] == [
        (run.topic, run.payload(), run.properties, run.ttl) for run in rows
    ]
    shapes = [bare_shape(Door.WEB, run.shape.qos, run.shape.retain) for run in rows]
    assert all(run.shape is shape for run, shape in zip(found, shapes, strict=True))


def test_a_chunk_is_closed_when_it_has_enough_rows_or_bytes() -> None:
    counts = [chunk.rows for chunk in pack(*rows_of("x", 2 * packing.CHUNK_ROWS + 1))]
    assert counts == [packing.CHUNK_ROWS, packing.CHUNK_ROWS, 1]
    large = row(payload=b"x" * (packing.CHUNK_BYTES // 2))
    assert [chunk.rows for chunk in pack(large, large, large)] == [2, 1]


def test_no_rows_make_no_chunk() -> None:
    assert pack() == []


def test_a_chunk_weighs_at_least_its_bytes_and_its_topics() -> None:
    (chunk,) = pack(row("t" * 1000, b"x" * 1000))
    assert weight_of(chunk) > 2000


def test_small_rows_weigh_what_they_take_when_they_are_published() -> None:
    (chunk,) = pack(*[row(payload=b"")] * 1000)
    assert len(chunk.data) < 10_000
    assert weight_of(chunk) > 100_000


def test_a_part_has_not_more_rows_than_the_setting_allows() -> None:
    limits = StageSettings(max_part_rows=5)
    assert [chunk.rows for chunk in pack(*rows_of("x", 5), stage=limits)] == [5]
    with pytest.raises(TooLarge, match=r"stage\.max_part_rows: a part may have 5 rows"):
        pack(*rows_of("x", 6), stage=limits)


def test_the_identity_decides_which_topics_are_allowed() -> None:
    class Only(OpenAccess):
        def may_publish(self, identity: object, topic: str) -> bool:
            return identity == ANYONE and topic == "a"

    packer = Packing(CoreSettings(), Only(), ANYONE)
    with pytest.raises(NotAuthorized, match="row 1: not allowed to publish to b"):
        packer.pack([row("a"), row("b")])


def test_the_generation_of_the_rules_is_that_of_the_first_row() -> None:
    access = OpenAccess()
    packer = Packing(CoreSettings(), access, ANYONE)
    access.generation = 7
    assert packer.pack([row()]).checked == (0, ANYONE)


def test_whoever_packs_lets_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(packing, "sleep", pauses.append)
    pack(*rows_of("x", 1_000))
    assert pauses == [packing.PAUSE_S] * (1_000 // packing.PAUSE_AFTER)


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (row("a/+"), InvalidTopic),
        (row(""), InvalidTopic),
        (row("$SYS/x"), NotAuthorized),
        (row(payload=b"x" * 1001), TooLarge),
        (row(properties=Properties(content_type="a\0b")), InvalidRequest),
        (row(properties=Properties(content_type="\ud800")), InvalidRequest),
        (row(properties=Properties(response_topic="a/#")), InvalidTopic),
        (row(properties=Properties(message_id="")), InvalidRequest),
        (row(properties=Properties(message_id="x" * 257)), InvalidRequest),
        (row(properties=Properties(user=(("k" * 40_000, "v" * 40_000),))), TooLarge),
        (row(properties=Properties(correlation_id=b"x" * 65_536)), TooLarge),
    ],
)
def test_a_row_that_no_door_could_pass_on_is_refused_by_its_number(
    bad: Run, error: type[PenstockError]
) -> None:
    with pytest.raises(error, match=r"^row 1: "):
        pack(row(), bad, max_payload_bytes=1000)


@pytest.mark.parametrize(
    "bloated",
    [
        [row(payload=b"x" * 100)] * 1000,
        [row(payload=b"", properties=RICH)] * 10_000,
        [row(f"{number}" + "t" * 1000) for number in range(100)],
    ],
)
def test_a_part_has_not_more_bytes_unpacked_than_the_setting_allows(bloated: list[Run]) -> None:
    with pytest.raises(TooLarge, match="50000 bytes"):
        pack(*bloated, stage=StageSettings(max_part_bytes=50_000))


def test_chunk_with_many_topics_is_short() -> None:
    rows = [row(f"t/{number}") for number in range(packing.CHUNK_TOPICS + 1)]
    assert [len(chunk.topics) for chunk in pack(*rows)] == [packing.CHUNK_TOPICS, 1]
