"""Cursor file and inbox of a subscription."""

from pathlib import Path
from uuid import uuid4

import pytest

import penstock
from penstock.client import CursorFile
from penstock.client.grpc.dialect import Arrived
from penstock.client.grpc.subscription import Inbox
from penstock.client.messages import ReceivedRun
from penstock.errors import InvalidCursor


def test_a_cursor_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = CursorFile(tmp_path / "cursor")
    assert file.read() is None
    file.write("first")
    file.write("second")
    assert CursorFile(str(tmp_path / "cursor")).read() == "second"
    assert [path.name for path in tmp_path.iterdir()] == ["cursor"]


def test_the_old_cursor_stays_if_the_new_one_cannot_be_written(tmp_path: Path) -> None:
    file = CursorFile(tmp_path / "cursor")
    file.write("old")
    with pytest.raises(UnicodeEncodeError):
        file.write("n\u00ebw")
    assert file.read() == "old"


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe"])
def test_a_file_without_a_cursor_is_no_reason_to_skip_anything(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "cursor").write_bytes(content)
    with pytest.raises(InvalidCursor, match="cursor"):
        CursorFile(tmp_path / "cursor").read()


def arrived(*payloads: bytes, cursor: str) -> Arrived:
    return Arrived([ReceivedRun("a", payloads, 1)] if payloads else [], cursor, len(payloads))


def test_a_message_is_seen_when_it_is_confirmed_and_no_earlier() -> None:
    inbox = Inbox("start")
    inbox.put(arrived(b"1", cursor="c1"))
    message = inbox.take()
    assert inbox.cursor == "start"
    inbox.confirm(message)
    assert inbox.cursor == "c1"


def test_a_cursor_in_the_middle_of_a_delivery_is_that_before_it() -> None:
    inbox = Inbox("start")
    inbox.put(Arrived([ReceivedRun("a", (b"1", b"2"), 1), ReceivedRun("b", (b"3",), 1)], "c3", 3))
    cursors = []
    for message in inbox.take_many(10):
        inbox.confirm(message)
        cursors.append(inbox.cursor)
    assert cursors == ["start", "start", "c3"]


def test_messages_of_a_run_have_numbers_of_their_own() -> None:
    inbox = Inbox(None)
    inbox.put(Arrived([ReceivedRun("a", (b"1", b"2"), 7)], "c", 2))
    assert [(message.payload, message.sequence) for message in inbox.take_many(2)] == [(b"1", 7), (b"2", 8)]


def test_a_cursor_without_messages_moves_on_only_if_all_was_seen() -> None:
    inbox = Inbox("start")
    inbox.put(arrived(cursor="c0"))
    assert inbox.cursor == "c0"
    inbox.put(arrived(b"1", cursor="c1"))
    inbox.put(arrived(cursor="c2"))
    assert inbox.cursor == "c0"
    message = inbox.take()
    inbox.put(arrived(cursor="c3"))
    assert inbox.cursor == "c0"
    inbox.confirm(message)
    inbox.put(arrived(cursor="c4"))
    assert inbox.cursor == "c4"


def test_no_more_are_taken_than_wait() -> None:
    inbox = Inbox(None)
    inbox.put(arrived(b"1", b"2", b"3", cursor="c"))
    assert len(inbox) == 3
    assert [message.payload for message in inbox.take_many(2)] == [b"1", b"2"]
    assert [message.payload for message in inbox.take_many(2)] == [b"3"]
    assert not inbox


class Shelf:
    """Cursor store of a program: any object that loads and saves."""

    def __init__(self) -> None:
        self.saved: list[str] = []

    def load(self) -> str | None:
        return self.saved[-1] if self.saved else None

    def save(self, cursor: str) -> None:
        self.saved.append(cursor)


async def test_any_store_keeps_a_cursor_across_subscriptions(address: str) -> None:
    topic, shelf = f"shelf/{uuid4().hex}", Shelf()
    async with penstock.connect(address) as client:
        async with client.subscribe(topic, after=shelf) as messages:
            await client.publish_json(topic, {"number": 1})
            assert (await anext(messages)).json() == {"number": 1}
            messages.confirm()
        assert shelf.saved
        await client.publish_json(topic, 2, retain=True)
        async with client.subscribe(topic, after=shelf, last=10) as messages:
            message = await anext(messages)
            assert (message.json(int), message.content_type) == (2, "application/json")


async def test_an_error_of_a_store_reaches_the_application(address: str) -> None:
    class Broken(Shelf):
        def save(self, cursor: str) -> None:
            raise OSError("no room")

    async with penstock.connect(address) as client:
        with pytest.raises(OSError, match="no room"):
            async with client.subscribe(f"shelf/{uuid4().hex}", after=Broken()):
                pass


def test_a_blocking_client_publishes_json_and_takes_a_store(address: str) -> None:
    topic, shelf = f"shelf/{uuid4().hex}", Shelf()
    with penstock.connect_sync(address) as client, client.subscribe(topic, after=shelf) as messages:
        client.publish_json(topic, [1, 2])
        assert next(iter(messages)).json(list[int]) == [1, 2]
    assert shelf.saved
