"""Why a client did not get a message: every verdict, as it comes about."""

import asyncio

import pytest

from penstock.common.topics import TopicLimits
from penstock.core.access.access import OpenAccess
from penstock.core.access.identity import Identity
from penstock.core.diagnostics.why import ENTRIES_AT_MOST, explain
from penstock.core.diagnostics.why_types import REASONS, Code, Explanation, Waiting
from penstock.core.settings import CoreSettings, LedgerSettings, OutboxSettings, RingSettings, SessionSettings
from penstock.core.streams.stream import GROUP
from penstock.model import Policy, Reason
from tests.core.streams.streaming import Crowd
from tests.support.broker import Stage

TOPIC = "a/b"


async def ask(stage: Stage, sequence: int = 1, client_id: str | None = "reader") -> Explanation:
    return await explain(stage.broker, TOPIC, sequence, client_id)


def test_every_reason_has_its_words() -> None:
    assert set(REASONS) == set(Reason)


@pytest.mark.parametrize("sequence", [0, 2, 1_000])
async def test_what_was_never_published_is_said_to_be_so(sequence: int) -> None:
    stage = Stage()
    stage.client("sender").publish(TOPIC, b"one")
    said = await ask(stage, sequence)
    assert said.code is Code.NOT_PUBLISHED
    assert said.newest == 1
    assert "the last one has the sequence 1" in said.text


async def test_a_topic_without_messages_has_had_none() -> None:
    said = await explain(Stage().broker, "never/heard/of", 1, "reader")
    assert said.code is Code.NOT_PUBLISHED
    assert "it has had none" in said.text


def forget(stage: Stage) -> None:
    """Nothing is left of the topic, and there is no room for it."""
    topic = stage.broker.topics[TOPIC]
    stage.node.router.refresh(topic)
    stage.advance(1.0)
    assert TOPIC not in stage.broker.topics


SMALL = CoreSettings(topic=TopicLimits(max_topics=1), ring=RingSettings(messages=0))


async def test_what_was_recorded_of_a_topic_that_is_forgotten_is_still_told() -> None:
    stage = Stage(SMALL)
    reader = stage.client("reader")
    reader.subscribe(TOPIC, limit_bytes=10)
    stage.client("sender").publish(TOPIC, b"x" * 100)
    stage.settle()
    reader.unsubscribe(TOPIC)
    forget(stage)
    said = await ask(stage)
    assert (said.code, said.newest) == (Code.NOT_DELIVERED, 1)
    assert [row.client_id for row in (await ask(stage, client_id=None)).rows] == ["reader"]


async def test_of_a_topic_that_may_be_forgotten_nobody_says_that_it_has_had_no_messages() -> None:
    stage = Stage(SMALL)
    for payload in (b"one", b"two"):
        stage.client("sender").publish(TOPIC, payload)
    stage.settle()
    forget(stage)
    for sequence, code in ((0, Code.NOT_PUBLISHED), (2, Code.NO_RECORD), (3, Code.NOT_PUBLISHED)):
        assert (await ask(stage, sequence)).code is code
    assert "is not known now" in (await ask(stage, 2)).text


async def test_a_dropped_message_is_explained_by_its_record() -> None:
    stage = Stage(CoreSettings(outbox=OutboxSettings(messages=1)))
    reader, sender = stage.client("reader"), stage.client("sender")
    reader.subscribe(TOPIC)
    reader.pause()
    for payload in (b"one", b"two"):
        sender.publish(TOPIC, payload)
        stage.settle()
    said = await ask(stage, 2)
    assert said.code is Code.NOT_DELIVERED
    assert [(row.reason, row.policy, row.setting) for row in said.rows] == [
        (Reason.OUTBOX_FULL, Policy.DROP_NEWEST, "outbox")
    ]
    assert "`outbox`" in said.text


async def test_a_message_in_the_outbox_waits_behind_others() -> None:
    stage = Stage()
    reader, sender = stage.client("reader"), stage.client("sender")
    reader.subscribe("#")
    reader.pause()
    sender.publish("other", b"x")
    sender.publish(TOPIC, b"1", b"2", b"3")
    stage.settle()
    said = await ask(stage, 3)
    assert said.code is Code.WAITING
    assert [(each.client_id, each.place, each.ahead, each.is_connected) for each in said.waiting] == [
        ("reader", "outbox", 3, True)
    ]


async def test_a_message_that_is_owed_waits_for_who_is_away() -> None:
    stage = Stage()
    reader, sender = stage.client("reader", expiry=60), stage.client("sender")
    reader.subscribe(TOPIC, qos=1)
    reader.drop()
    sender.publish(TOPIC, b"one", qos=1)
    stage.settle()
    said = await ask(stage)
    assert said.code is Code.WAITING
    assert [(each.place, each.is_connected) for each in said.waiting] == [("owed", False)]
    assert "not connected" in said.text


async def test_a_message_without_acknowledgement_is_in_flight() -> None:
    stage = Stage()
    reader, sender = stage.client("reader"), stage.client("sender")
    reader.subscribe(TOPIC, qos=1)
    sender.publish(TOPIC, b"one", qos=1)
    stage.settle()
    assert (await ask(stage)).code is Code.IN_FLIGHT
    reader.take_and_acknowledge()
    assert (await ask(stage)).code is Code.NO_RECORD


async def test_a_message_of_a_shared_group_waits_for_all_its_members() -> None:
    stage = Stage()
    reader, sender = stage.client("reader", expiry=60), stage.client("sender")
    reader.subscribe(f"$share/team/{TOPIC}", qos=1)
    reader.drop()
    sender.publish(TOPIC, b"one", qos=1)
    stage.settle()
    said = await ask(stage)
    assert [(each.client_id, each.place) for each in said.waiting] == [(f"$share/team/{TOPIC}", "group")]


async def test_what_a_shared_group_lost_is_told_to_its_members() -> None:
    stage = Stage(CoreSettings(sessions=SessionSettings(owed_messages=1)))
    reader, sender = stage.client("reader", expiry=60), stage.client("sender")
    reader.subscribe(f"$share/team/{TOPIC}", qos=1)
    reader.drop()
    for payload in (b"one", b"two"):
        sender.publish(TOPIC, payload, qos=1)
        stage.settle()
    said = await ask(stage, 2)
    assert said.code is Code.NOT_DELIVERED
    assert f"shared group $share/team/{TOPIC}" in said.text


async def test_what_another_member_may_have_got_is_said_to_be_so() -> None:
    stage = Stage()
    reader, other = stage.client("reader"), stage.client("other")
    for member in (reader, other):
        member.subscribe(f"$share/team/{TOPIC}")
    stage.client("sender").publish(TOPIC, b"one")
    stage.settle()
    said = await ask(stage)
    assert said.code is Code.NO_RECORD
    assert "a member of the shared group" in said.text


async def test_a_retained_value_that_is_still_to_be_sent_waits() -> None:
    stage = Stage()
    stage.client("sender").publish(TOPIC, b"value", retain=True)
    stage.settle()
    reader = stage.client("reader")
    reader.pause()
    reader.subscribe("#")
    said = await ask(stage)
    assert [each.place for each in said.waiting] == ["retained"]
    reader.unpause()
    stage.settle()
    assert not (await ask(stage)).waiting


async def test_who_is_not_known_has_no_session() -> None:
    stage = Stage()
    stage.client("sender").publish(TOPIC, b"one")
    assert (await ask(stage)).code is Code.NO_SESSION


async def test_a_session_that_ended_is_still_explained_by_its_record() -> None:
    stage = Stage()
    reader, sender = stage.client("reader"), stage.client("sender")
    reader.subscribe(TOPIC)
    reader.pause()
    sender.publish(TOPIC, b"one")
    stage.settle()
    reader.drop()
    said = await ask(stage)
    assert said.code is Code.NOT_DELIVERED
    assert said.rows[0].reason is Reason.DISCONNECTED


async def test_who_does_not_subscribe_now_is_told_that_the_past_is_not_known() -> None:
    stage = Stage()
    reader = stage.client("reader")
    reader.subscribe("something/else")
    stage.client("sender").publish(TOPIC, b"one")
    stage.settle()
    said = await ask(stage)
    assert said.code is Code.NO_SUBSCRIPTION
    assert "is not recorded" in said.text


async def test_who_subscribed_after_the_message_is_told_so() -> None:
    stage = Stage()
    stage.client("sender").publish(TOPIC, b"one")
    stage.settle()
    stage.client("reader").subscribe("a/+")
    said = await ask(stage)
    assert said.code is Code.SUBSCRIBED_LATER
    assert said.filters == ["a/+"]


async def test_who_wanted_nothing_of_its_own_is_told_so() -> None:
    stage = Stage()
    reader = stage.client("reader")
    reader.subscribe(TOPIC, no_local=True)
    reader.publish(TOPIC, b"one")
    stage.settle()
    assert (await ask(stage)).code is Code.OWN_MESSAGE


class Closed(OpenAccess):
    """Nobody may read anything."""

    def may_read(self, identity: Identity, topic: str) -> bool:
        return False


async def test_who_may_not_read_the_topic_is_told_so() -> None:
    stage = Stage(access=Closed())
    stage.client("reader")
    stage.client("sender").publish(TOPIC, b"one")
    assert (await ask(stage)).code is Code.NOT_AUTHORIZED


async def test_what_was_delivered_leaves_no_record() -> None:
    stage = Stage()
    reader = stage.client("reader")
    reader.subscribe(TOPIC)
    stage.client("sender").publish(TOPIC, b"one")
    stage.settle()
    assert reader.take_payloads() == [b"one"]
    said = await ask(stage)
    assert said.code is Code.NO_RECORD
    assert said.message is not None
    assert (said.message.client_id, said.message.qos, said.message.missing) == ("sender", 0, None)


async def test_a_message_that_has_left_memory_is_known_by_its_reason() -> None:
    stage = Stage(CoreSettings(ring=RingSettings(messages=1)))
    sender = stage.client("sender")
    for payload in (b"one", b"two", b"three"):
        sender.publish(TOPIC, payload)
    said = await ask(stage, 1)
    assert said.message is not None
    assert (said.message.published_at, said.message.missing) == (None, Reason.EVICTED)


async def test_without_a_client_everyone_concerned_is_named() -> None:
    stage = Stage(CoreSettings(outbox=OutboxSettings(messages=1)))
    sender, slow, lost = stage.client("sender"), stage.client("slow"), stage.client("lost")
    absent = stage.client("absent", expiry=60)
    for reader in (slow, lost, absent, stage.client("quick")):
        reader.subscribe("#", qos=1)
    absent.drop()
    for client in (slow, lost):
        client.pause()
    sender.publish("filler", b"x", qos=1)
    stage.settle()
    slow.unpause()
    slow.pause()
    sender.publish(TOPIC, b"one", qos=1)
    stage.settle()
    said = await ask(stage, 1, None)
    assert said.code is Code.PUBLISHED
    assert [row.client_id for row in said.rows] == ["lost"]
    assert {(each.client_id, each.place) for each in said.waiting} == {
        ("slow", "outbox"),
        ("absent", "owed"),
        ("quick", "in-flight"),
    }
    assert said.text == (
        "It was published. One failed delivery recorded. Queued for 3 subscribers. a/b has 4 subscribers now."
    )


async def test_without_a_client_a_shared_group_is_named_once() -> None:
    stage = Stage()
    for name in ("one", "two"):
        member = stage.client(name, expiry=60)
        member.subscribe(f"$share/team/{TOPIC}", qos=1)
        member.drop()
    stage.client("sender").publish(TOPIC, b"one", qos=1)
    stage.settle()
    said = await ask(stage, 1, None)
    assert [(each.client_id, each.place) for each in said.waiting] == [(f"$share/team/{TOPIC}", "group")]
    assert "Queued for one subscriber. a/b has one subscriber now." in said.text


async def test_without_a_client_a_session_is_named_once_even_if_it_is_in_a_group_as_well() -> None:
    stage = Stage()
    both, other = stage.client("both"), stage.client("other")
    both.subscribe(TOPIC)
    for member in (both, other):
        member.subscribe(f"$share/team/{TOPIC}")
    both.pause()
    stage.client("sender").publish(TOPIC, b"one")
    stage.settle()
    said = await ask(stage, 1, None)
    assert [(each.client_id, each.place) for each in said.waiting] == [("both", "outbox")]


async def turns_of(stage: Stage) -> int:
    """How many turns others have while somebody asks."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count())
    await ask(stage, 10, None)
    counting.cancel()
    return turns


@pytest.mark.parametrize("is_shared", [False, True])
async def test_others_have_their_turn_however_many_messages_there_are_to_look_at(
    is_shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.core.diagnostics.why.LOOKED_AT_A_SLICE", 10)
    stage = Stage()
    for number in range(20):
        reader = stage.client(f"reader-{number}", expiry=60)
        reader.subscribe(f"$share/{number}/{TOPIC}" if is_shared else TOPIC, qos=1)
        reader.drop()
    for _ in range(10):
        stage.client("sender").publish(TOPIC, b"x", qos=1)
        stage.settle()
    assert await turns_of(stage) >= 15


async def test_others_have_their_turn_however_many_records_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.core.diagnostics.why.LOOKED_AT_A_SLICE", 1)
    stage = Stage()
    for number in range(20):
        reader = stage.client(f"reader-{number}", expiry=60)
        reader.subscribe(TOPIC)
        reader.drop()
    for _ in range(10):
        stage.client("sender").publish(TOPIC, b"x")
    stage.advance(61.0)
    assert "has no subscribers now" in (await ask(stage, 10, None)).text
    assert await turns_of(stage) >= 15


async def test_a_message_that_concerns_nobody_is_said_so_in_plain_words() -> None:
    stage = Stage()
    stage.client("sender").publish(TOPIC, b"one")
    stage.settle()
    said = await ask(stage, 1, None)
    assert said.text == (
        "It was published. No failed deliveries recorded. Not queued for anyone. a/b has no subscribers now."
    )


async def test_many_who_did_not_get_it_are_counted() -> None:
    stage = Stage()
    for name in ("one", "two"):
        client = stage.client(name, expiry=60)
        client.subscribe(TOPIC)
        client.drop()
    stage.client("sender").publish(TOPIC, b"one")
    stage.settle()
    assert "2 failed deliveries recorded." in (await ask(stage, 1, None)).text


@pytest.mark.parametrize(
    ("sequence", "words"), [(1, "next to leave"), (2, "behind one other"), (3, "behind 2 others")]
)
async def test_what_is_before_it_is_told_in_plain_words(sequence: int, words: str) -> None:
    stage = Stage()
    reader, sender = stage.client("reader"), stage.client("sender")
    reader.subscribe(TOPIC)
    reader.pause()
    sender.publish(TOPIC, b"1", b"2", b"3")
    stage.settle()
    assert (await ask(stage, sequence)).text == f"It waits for reader, in its outbox, {words}."


async def test_an_answer_names_no_more_than_it_may() -> None:
    stage = Stage()
    readers = [stage.client(f"reader-{number}") for number in range(ENTRIES_AT_MOST + 1)]
    for reader in readers:
        reader.subscribe(TOPIC, qos=1)
    stage.client("sender").publish(TOPIC, b"one", qos=1)
    stage.settle()
    said = await ask(stage, 1, None)
    assert len(said.waiting) == ENTRIES_AT_MOST
    assert said.is_truncated


async def test_an_answer_tells_how_much_the_ledger_has_forgotten() -> None:
    stage = Stage(CoreSettings(ledger=LedgerSettings(rows=1)))
    for name in ("one", "two"):
        client = stage.client(name, expiry=60)
        client.subscribe(TOPIC)
        client.drop()
    stage.client("sender").publish(TOPIC, b"one")
    stage.settle()
    assert (await ask(stage)).rows_forgotten == 1


async def test_what_waits_in_a_stream_is_said_to_wait_there() -> None:
    stage = Stage()
    crowd = Crowd(stage)
    for _ in range(2):
        crowd.send(topic=TOPIC)
    said = await ask(stage, 2, None)
    assert said.waiting == [Waiting(GROUP, "stream", 1, False)]
    assert "Queued in its stream for the next receiver." in said.text
    said = await ask(stage, 2, GROUP)
    assert (said.code, said.waiting) == (Code.WAITING, [Waiting(GROUP, "stream", 1, False)])
    assert (
        said.text
        == "It waits for $stream, in the stream of its topic, behind one other. Nobody receives there now."
    )
    crowd.take_all(TOPIC)
    said = await ask(stage, 2, None)
    assert said.waiting == []
    assert "Not queued for anyone." in said.text
