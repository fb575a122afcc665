"""`penstock log read`: exactly what is asked for, and a statement of what is not there."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from penstock.common.cursor import Cursor, Position
from penstock.model import Properties
from penstock.storage.disk.pieces.frames import Frame, encode_frame
from penstock.storage.disk.recovery.opening import open_store
from penstock.storage.disk.rocksdb.layout import (
    FIRST_OFFSET_KEY,
    INDEX,
    LOG,
    ROWS,
    SEQUENCES,
    STATE,
    TOPICS,
    offset_key,
    read_header,
    sequence_key,
)
from penstock.storage.disk.rocksdb.store import Changes
from tests.cli.log.conftest import Run
from tests.support.data_directories import NOON, NOON_TEXT, OpenLog, change, messages, seal, write
from tests.support.samples import make_run

ALL = list(range(1, 10))


def at(second: int) -> str:
    return f"2023-11-14T22:13:{20 + second}Z"


def cursor(path: Path, epoch: int, offset: int, log_id: str | None = None) -> str:
    header = read_header(path)
    assert header is not None
    return Cursor((Position(log_id or header.log_id, epoch, offset),)).encode()


def trim(path: Path, first_offset: int) -> None:
    """Let the sealed batch leave by retention."""
    gone = [(family, offset_key(1)) for family in (LOG, INDEX, TOPICS)]
    change(path, put={(STATE, FIRST_OFFSET_KEY): offset_key(first_offset)}, delete=gone)


def test_everything_is_written_in_order(run: Run, data: Path) -> None:
    ended = run("read", data)
    assert ended.code == 0
    assert ended.offsets == ALL
    assert ended.out.splitlines()[4] == f"5 {NOON_TEXT[:-2]}25.000000Z a 3 a-1"
    assert ended.err.startswith("served 9 messages; the log ends here: --after ")


@pytest.mark.parametrize(
    ("words", "offsets"),
    [
        ("--from-offset 5", [5, 6, 7, 8, 9]),
        ("--from-offset 10", []),
        ("--limit 2", [1, 2]),
        ("--limit 8", [1, 2, 3, 4, 5, 6, 7, 8]),
        ("--from-offset 3 --limit 2", [3, 4]),
        ("--topic a", [1, 4, 5, 8]),
        ("--topic a --first 2", [4, 5, 8]),
        ("--topic a --first 2 --last 3", [4, 5]),
        ("--topic a --last 4", [1, 4, 5, 8]),
        ("--topic a --last 9", [1, 4, 5, 8]),
        ("--topic a --limit 3", [1, 4, 5]),
        ("--topic nobody", []),
        ("--topic a --first 9", []),
        ("--filter a --filter b", [1, 2, 4, 5, 6, 8, 9]),
        ("--filter +", ALL),
        ("--filter x/#", []),
        (f"--since {at(4)}", [4, 5, 6, 7, 8, 9]),
        (f"--until {at(4)}", [1, 2, 3]),
        (f"--since {at(3)} --until {at(8)}", [3, 4, 5, 6, 7]),
        (f"--since {at(8)} --until {at(8)}", []),
        (f"--since {at(9)} --filter b", [9]),
        ("--since 5m", []),
        ("--until 2023-11-14", []),
        ("--until 2023-11-14T23:13:25+01:00", [1, 2, 3, 4]),
    ],
)
@pytest.mark.parametrize("output", ["text", "json"])
def test_what_is_asked_for_is_written(
    run: Run, data: Path, words: str, offsets: list[int], output: str
) -> None:
    ended = run("read", data, *words.split(), "-o", output)
    assert (ended.code, ended.offsets) == (0, offsets), ended.err


def test_json_has_every_column(run: Run, tmp_path: Path) -> None:
    properties = Properties("text/plain", b"\xff", "reply", 1, "m-1", (("k", "v"), ("k", "w")))
    write(
        tmp_path / "data", [make_run("a", b"\xfe\xff", qos=2, retain=True, ttl=60.0, properties=properties)]
    )
    ended = run("read", tmp_path / "data", "-o", "json")
    assert ended.rows == [
        {
            "offset": 1,
            "topic": "a",
            "sequence": 1,
            "epoch": 1,
            "published_at": "2023-11-14T22:13:21Z",
            "expires_at": "2023-11-14T22:14:21Z",
            "qos": 2,
            "retain": True,
            "payload": {"$bytes": "/v8="},
            "content_type": "text/plain",
            "correlation_id": {"$bytes": "/w=="},
            "message_id": "m-1",
            "client_id": "",
            "node_id": "",
            "door": "mqtt",
            "properties": [["k", "v"], ["k", "w"], ["$response_topic", "reply"], ["$payload_format", "1"]],
            "logged_at": "2023-11-14T22:13:20Z",
        }
    ]


def test_a_message_is_one_line_whatever_it_holds(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "data", [make_run("a", b"one\ntwo\r\x1b[31m\xff\tred\xe2\x80\xa8")])
    [line] = run("read", tmp_path / "data").out.splitlines()
    assert line.endswith(r" a 1 one\ntwo\r\x1b[31m\xff\tred\u2028")


def test_a_cursor_goes_on_where_the_last_read_ended(run: Run, data: Path) -> None:
    first = run("read", data, "--limit", 4, "-o", "json")
    assert first.statement["is_at_head"] is False
    assert first.err.count("\n") == 1
    second = run("read", data, "--after", first.statement["next"], "-o", "json")
    assert first.offsets + second.offsets == ALL
    assert second.statement == {
        "served": 5,
        "after": cursor(data, 2, 4),
        "next": cursor(data, 2, 9),
        "is_at_head": True,
        "gaps": [],
        "missing": [],
    }


@pytest.mark.parametrize(("words", "offsets"), [("", [7, 8, 9]), ("--limit 1", [7]), ("--topic a", [8])])
def test_a_cursor_beyond_the_end_of_its_epoch_is_cut_back(
    run: Run, data: Path, words: str, offsets: list[int]
) -> None:
    ended = run("read", data, "--after", cursor(data, 1, 8), *words.split())
    assert (ended.code, ended.offsets) == (3, offsets)
    assert ended.err.splitlines()[1] == "missing: offsets 7 to 8 (2): lost-uncommitted"


def test_the_end_of_an_epoch_is_no_loss(run: Run, data: Path) -> None:
    assert run("read", data, "--after", cursor(data, 1, 6)).offsets == [7, 8, 9]


@pytest.mark.parametrize(("epoch", "offset"), [(2, 10), (3, 4)])
def test_a_cursor_ahead_of_the_log_is_refused(run: Run, data: Path, epoch: int, offset: int) -> None:
    ended = run("read", data, "--after", cursor(data, epoch, offset))
    assert ended == (1, "", "error: this cursor is ahead of the log\n")


def test_a_cursor_of_another_log_is_refused(run: Run, data: Path) -> None:
    ended = run("read", data, "--after", cursor(data, 1, 2, log_id="ab" * 8))
    assert ended == (1, "", "error: this cursor is of another log\n")


def test_an_offset_ahead_of_the_log_is_refused(run: Run, data: Path) -> None:
    assert run("read", data, "--from-offset", 11) == (1, "", "error: the log ends with offset 9\n")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--after x --from-offset 3", "give one of --after and --from-offset"),
        ("--topic a --filter a", "give one of --topic and --filter"),
        ("--first 1", "--first and --last are sequences of a --topic"),
        ("--last 1 --filter a", "--first and --last are sequences of a --topic"),
        ("--topic a --first 1 --since 1d", "--first and --last do not go with"),
        ("--since yesterday", "'yesterday' is not a valid time"),
        ("--since 999999999d", "'999999999d' is not a valid time"),
        ("--since 9999999999999d", "'9999999999999d' is not a valid time"),
        ("--topic a --first 3 --last 2", "--first is after --last"),
        ("--since 1d --until 2d", "--since is after --until"),
        ("--filter a/#/b", "the last level of a filter"),
        ("--filter $share/g/a", "a log is not shared"),
        ("--topic a/+", "a topic holds no + or #"),
        ("--after nonsense", "not a cursor"),
        ("--limit 0", "expected at least 1, got '0'"),
    ],
)
def test_what_makes_no_sense_is_wrong_usage(run: Run, data: Path, words: str, says: str) -> None:
    ended = run("read", data, *words.split())
    assert ended.code == 2
    assert says in " ".join(ended.err.replace("│", " ").split())


def test_what_retention_has_taken_is_missing_if_it_was_asked_for(run: Run, data: Path) -> None:
    trim(data, 7)
    assert run("read", data)[:1] == (0,)
    ended = run("read", data, "--from-offset", 4)
    assert (ended.code, ended.offsets) == (3, [7, 8, 9])
    assert ended.err.splitlines()[1:] == ["missing: offsets 4 to 6 (3): retention"]
    assert run("read", data, "--since", at(0)).code == 3
    assert run("read", data, "--since", at(8)).code == 0


def test_what_is_damaged_is_missing_and_the_rest_is_served(run: Run, data: Path) -> None:
    change(data, delete=[(ROWS, offset_key(7))])
    ended = run("read", data, "-o", "json")
    assert (ended.code, ended.offsets) == (3, [1, 2, 3, 4, 5, 6, 9])
    assert ended.statement["gaps"] == [{"first": 7, "last": 8, "reason": "damaged"}]


def test_a_batch_that_cannot_be_read_is_missing(run: Run, data: Path) -> None:
    change(data, put={(LOG, offset_key(1)): b"scrambled"})
    ended = run("read", data)
    assert (ended.code, ended.offsets) == (3, [7, 8, 9])
    assert ended.err.splitlines()[1:] == ["missing: offsets 1 to 6 (6): damaged"]


def test_damage_behind_a_limit_does_not_matter(run: Run, data: Path) -> None:
    change(data, delete=[(ROWS, offset_key(7))])
    assert run("read", data, "--limit", 6).code == 0


def test_a_lost_end_is_missing(run: Run, data: Path) -> None:
    change(data, delete=[(ROWS, offset_key(9))])
    ended = run("read", data)
    assert (ended.code, ended.offsets) == (3, ALL[:-1])
    assert ended.err.splitlines()[1:] == ["missing: offset 9: damaged"]


def test_of_a_topic_the_missing_sequences_are_told(run: Run, data: Path) -> None:
    change(data, put={(LOG, offset_key(1)): b"scrambled"})
    ended = run("read", data, "--topic", "a", "--first", 2, "-o", "json")
    assert (ended.code, ended.offsets) == (3, [8])
    assert ended.statement["missing"] == [{"topic": "a", "first": 2, "last": 3, "reason": "damaged"}]
    assert ended.statement["gaps"] == []


def test_damage_between_two_messages_of_a_topic_that_follow_one_another_does_not_matter(
    run: Run, data: Path
) -> None:
    change(data, delete=[(ROWS, offset_key(7))])
    assert run("read", data, "--topic", "b").code == 0
    assert run("read", data, "--topic", "a", "--last", 3).code == 0


@pytest.mark.parametrize("words", ["", "--first 1", "--first 2", "--first 2 --last 9"])
def test_damage_after_the_last_message_of_a_topic_may_have_had_more_of_it(
    run: Run, data: Path, words: str
) -> None:
    change(data, delete=[(ROWS, offset_key(7))])
    ended = run("read", data, "--topic", "c", *words.split())
    assert ended.code == 3
    assert ended.err.splitlines()[1:] == ["missing: offsets 7 to 8 (2): damaged"]


def test_of_a_topic_the_last_ones_are_missing_if_they_are_known_to_have_been(run: Run, data: Path) -> None:
    trim(data, 7)
    ended = run("read", data, "--topic", "a", "--first", 1, "--last", 2)
    assert (ended.code, ended.offsets) == (3, [])
    assert ended.err.splitlines()[1:] == ["missing: a sequences 1 to 2: retention"]


def test_how_far_back_damage_reaches_may_not_be_known(run: Run, data: Path) -> None:
    change(data, put={(LOG, offset_key(1)): b"scrambled"})
    ended = run("read", data, "--topic", "b")
    assert (ended.code, ended.offsets) == (3, [9])
    assert ended.err.splitlines()[1:] == ["missing: b sequences up to 2: damaged"]


def test_sequences_that_were_not_asked_for_are_not_missing(run: Run, data: Path) -> None:
    trim(data, 7)
    assert run("read", data, "--topic", "a").code == 0
    ended = run("read", data, "--topic", "a", "--first", 1)
    assert (ended.code, ended.offsets) == (3, [8])
    assert ended.err.splitlines()[1:] == ["missing: a sequences 1 to 3: retention"]


def test_why_the_first_sequences_are_missing_does_not_depend_on_their_places(run: Run, data: Path) -> None:
    seal(data)
    trim(data, 7)
    change(
        data, delete=[(SEQUENCES, sequence_key("a", 1))]
    )  # as retention does, because there is a later one
    ended = run("read", data, "--topic", "a", "--first", 2)
    assert ended.err.splitlines()[1:] == ["missing: a sequences 2 to 3: retention"]


def test_messages_of_the_same_moment_stay_together(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "data"

    async def live() -> None:
        opened = OpenLog(path)
        opened.step_us = 0
        for letter in "abc":
            await opened.commit(messages(letter))
        opened.log.close()

    asyncio.run(live())
    assert run("read", path, "--since", f"{NOON_TEXT}Z").offsets == [1, 2, 3]
    assert run("read", path, "--since", f"{NOON_TEXT}.000001Z").offsets == []
    assert run("read", path, "--until", f"{NOON_TEXT}Z").offsets == []
    assert run("read", path, "--until", f"{NOON_TEXT}.000001Z").offsets == [1, 2, 3]


def test_a_topic_that_was_not_kept_for_a_while_says_so(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "data"

    async def live() -> None:
        opened = OpenLog(path)
        await opened.commit(messages("a"))
        opened.sequences["a"] += 3
        await opened.commit(messages("a"), skipped=3)
        opened.log.close()

    asyncio.run(live())
    ended = run("read", path, "--topic", "a")
    assert (ended.code, ended.offsets) == (3, [1, 5])
    assert ended.err.splitlines()[1:] == ["missing: a sequences 2 to 4: never-stored"]
    assert run("read", path).code == 0


@contextmanager
def rows_beyond_the_mark(path: Path) -> Iterator[None]:
    """A server that has written rows and has not ended the commit."""
    store, _ = open_store(path)
    run = make_run("z", b"uncommitted", qos=1, sequence=1, offset=10)
    changes = Changes()
    changes.put(ROWS, offset_key(10), encode_frame(Frame(2, 10, 10, NOON, [run])))
    store.write(changes, sync=True)
    yield
    store.close()


@pytest.mark.parametrize("words", ["read", "read --topic z", "tail"])
def test_what_a_server_has_not_committed_is_not_shown(run: Run, data: Path, words: str) -> None:
    command, *flags = words.split()
    with rows_beyond_the_mark(data):
        ended = run(command, data, *flags)
    assert ended.code == 0
    assert 10 not in ended.offsets


def test_what_a_server_has_not_committed_does_not_count(run: Run, data: Path) -> None:
    with rows_beyond_the_mark(data):
        told = msgspec.json.decode(run("info", data, "-o", "json").out)
        read = run("verify", data).out
    assert (told["last_offset"], told["messages"], told["unsealed_frames"], told["topics"]) == (9, 9, 2, 3)
    assert read.startswith("read 9 messages, 1 sealed batch, 2 frames, ")


def test_without_a_server_everything_counts_that_is_there(run: Run, data: Path) -> None:
    with rows_beyond_the_mark(data):
        pass
    assert run("read", data).offsets == [*ALL, 10]
