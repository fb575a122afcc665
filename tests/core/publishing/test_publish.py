"""Publishing: stamps, one write per subscriber and turn, topic rules, and what is refused."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.common.topics import TopicLimits
from penstock.core.access.file_access import FileAccess
from penstock.core.access.identity import Identity
from penstock.core.sessions.session import TOPICS_REMEMBERED
from penstock.core.settings import CoreSettings, LogSettings, OutboxSettings, TopicRule
from penstock.core.topics.ring import RUN_BYTES
from penstock.errors import InvalidTopic, NotAuthorized, PenstockError, QuotaExceeded, StorageUnavailable
from penstock.model import Door, Policy
from penstock.runs import NEVER, Run
from tests.support.broker import Stage
from tests.support.disk import Disk
from tests.support.encodings import PlainEncoding
from tests.support.samples import make_run, payloads_of


class CountedForm(PlainEncoding, frozen=True, kw_only=True, dict=True):
    """A form that remembers how often it was asked for bytes."""

    calls: list[int]

    def __hash__(self) -> int:
        return id(self.calls)

    def encode(self, runs: Sequence[Run], now: float) -> bytes:
        self.calls.append(sum(run.count for run in runs))
        return super().encode(runs, now)


def stage_with(*rules: TopicRule, **settings: object) -> Stage:
    return Stage(CoreSettings(topics=rules, **settings))  # type: ignore[arg-type]


# Stamps


def test_sequences_rise_by_one_for_each_topic_from_one() -> None:
    client = Stage().client("c")
    receipts = [client.publish(topic, b"x") for topic in ("a", "b", "a", "a", "b")]
    assert [receipt.run.sequence for receipt in receipts] == [1, 1, 2, 3, 2]


def test_offsets_rise_by_one_over_all_topics() -> None:
    client = Stage().client("c")
    receipts = [client.publish(topic, b"x") for topic in ("a", "b", "a", "c")]
    assert [receipt.run.offset for receipt in receipts] == [1, 2, 3, 4]


def test_a_run_consumes_a_sequence_and_an_offset_for_each_message() -> None:
    client = Stage().client("c")
    client.publish("a", b"1", b"2", b"3")
    run = client.publish("a", b"4").run
    assert (run.sequence, run.offset) == (4, 4)


def test_everyone_who_publishes_to_a_topic_shares_its_sequence() -> None:
    stage = Stage()
    one, other = stage.client("one"), stage.client("other")
    assert [c.publish("a", b"x").run.sequence for c in (one, other, one)] == [1, 2, 3]


def test_a_message_is_stamped_with_its_sender_and_the_wall_clock() -> None:
    stage = Stage()
    client = stage.client("me")
    stage.clock.advance(5.0)
    run = client.publish("a", b"x").run
    assert (run.client_id, run.published_at) == ("me", stage.clock.wall_us())


def test_a_message_has_no_end_unless_someone_gives_it_one() -> None:
    stage = Stage()
    client = stage.client("c")
    assert client.publish("a", b"x").run.expires_at == NEVER
    assert client.publish("a", b"x", ttl=3.0).run.expires_at == stage.clock.monotonic() + 3.0


def test_a_jump_of_the_wall_clock_does_not_move_the_end_of_a_message() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("a")
    reader.pause()
    sender.publish("a", b"x", ttl=10.0)
    stage.settle()
    stage.clock.jump(1_000_000.0)
    stage.advance(1.0)
    reader.unpause()
    assert reader.take_payloads() == [b"x"]


# One write for each subscriber and turn


def test_what_was_published_in_one_turn_is_one_write_in_order_of_arrival() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("#")
    for topic, payload in (("a", b"1"), ("b", b"2"), ("a", b"3"), ("c/d", b"4")):
        sender.publish(topic, payload)
    assert reader.connection.writes == []
    stage.settle()
    assert len(reader.connection.writes) == 1
    assert [(d.topic, d.payload) for d in reader.take()] == [
        ("a", b"1"),
        ("b", b"2"),
        ("a", b"3"),
        ("c/d", b"4"),
    ]


def test_topics_with_different_audiences_still_arrive_in_one_write_in_order() -> None:
    stage = Stage()
    sender, reader, other = stage.client("s"), stage.client("r"), stage.client("o")
    reader.subscribe("a")
    reader.subscribe("b", 1)
    reader.subscribe("c/#")
    other.subscribe("b")
    for number, topic in enumerate(("a", "b", "c/1", "b", "a", "c")):
        sender.publish(topic, str(number).encode(), qos=number % 2)
    stage.settle()
    assert len(reader.connection.writes) == 1
    assert reader.take_payloads() == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert other.take_payloads() == [b"1", b"3"]


def test_each_turn_has_a_write_of_its_own() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("a")
    sender.publish("a", b"1")
    stage.settle()
    sender.publish("a", b"2")
    stage.settle()
    assert len(reader.connection.writes) == 2


def test_subscribers_with_equal_forms_share_one_encoding() -> None:
    stage = Stage()
    sender, calls = stage.client("s"), list[int]()
    readers = [stage.client(f"r{number}") for number in range(5)]
    for reader in readers:
        reader.subscribe("a", encoding=CountedForm(calls=calls))
    for _ in range(3):
        sender.publish("a", b"x", b"y")
    stage.settle()
    assert calls == [6]
    assert all(reader.take_payloads() == [b"x", b"y"] * 3 for reader in readers)


def test_subscribers_of_different_forms_are_encoded_for_separately() -> None:
    stage = Stage()
    sender, plain, tagged = stage.client("s"), stage.client("p"), stage.client("t")
    plain.subscribe("a")
    tagged.subscribe("a", identifier=9)
    sender.publish("a", b"x")
    stage.settle()
    assert [d.identifiers for d in plain.take()] == [()]
    assert [d.identifiers for d in tagged.take()] == [(9,)]


def test_nothing_is_encoded_for_a_class_in_which_nobody_keeps_up() -> None:
    stage = Stage()
    sender, reader, calls = stage.client("s"), stage.client("r"), list[int]()
    reader.subscribe("a", encoding=CountedForm(calls=calls))
    reader.pause()
    sender.publish("a", b"x")
    stage.settle()
    assert calls == []


def test_a_message_that_nobody_asked_for_reaches_nobody_and_is_no_loss() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("other")
    receipt = sender.publish("a", b"x")
    stage.settle()
    assert not receipt.is_matched
    assert reader.connection.writes == []
    assert stage.broker.ledger.total == 0


def test_a_shared_group_counts_as_one_subscriber() -> None:
    stage = Stage()
    sender = stage.client("s")
    for number in range(3):
        stage.client(f"r{number}").subscribe("a/#")
    stage.client("both", expiry=60.0).subscribe("a/b")
    stage.client("shared").subscribe("$share/g/a/+")
    stage.client("shared too").subscribe("$share/g/a/+")
    assert sender.publish("a/b", b"x").is_matched
    assert stage.broker.subscriber_count("a/b") == 5


def test_messages_at_qos_0_leave_at_qos_0_whatever_was_asked_for() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("a", 2)
    for qos in (0, 1, 2):
        sender.publish("a", b"x", qos=qos)
    stage.settle()
    assert [d.qos for d in reader.take()] == [0, 1, 2]


def test_messages_leave_at_the_qos_that_was_asked_for_if_that_is_lower() -> None:
    stage = Stage()
    sender, readers = stage.client("s"), [stage.client(f"r{qos}") for qos in range(3)]
    for qos, reader in enumerate(readers):
        reader.subscribe("a", qos)
    sender.publish("a", b"x", qos=2)
    stage.settle()
    assert [reader.take()[0].qos for reader in readers] == [0, 1, 2]


def test_each_subscriber_has_delivery_numbers_of_its_own() -> None:
    stage = Stage()
    sender, one, other = stage.client("s"), stage.client("one"), stage.client("other")
    one.subscribe("#", 1)
    other.subscribe("b", 1)
    sender.publish("a", b"1", qos=1)
    sender.publish("b", b"2", qos=1)
    stage.settle()
    assert [(d.payload, d.number) for d in one.take()] == [(b"1", 1), (b"2", 2)]
    assert [(d.payload, d.number) for d in other.take()] == [(b"2", 1)]


def test_a_message_too_large_for_a_subscriber_is_left_out_and_recorded() -> None:
    stage = Stage()
    sender, small, large = stage.client("s"), stage.client("small"), stage.client("large")
    small.subscribe("a", limit_bytes=10)
    large.subscribe("a")
    sender.publish("a", b"x")
    sender.publish("a", b"far too large")
    sender.publish("a", b"y")
    stage.settle()
    assert small.take_payloads() == [b"x", b"y"]
    assert large.take_payloads() == [b"x", b"far too large", b"y"]
    assert stage.losses() == [("a", 2, 2, "packet-too-large")]


@pytest.mark.parametrize("qos", [0, 1])
def test_a_message_too_large_for_someone_who_lags_is_recorded_once(qos: int) -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("a", qos, limit_bytes=30)
    reader.pause()
    sender.publish("a", b"far too large for thirty bytes", qos=qos)
    stage.settle()
    reader.unpause()
    stage.settle()
    assert reader.take_payloads() == []
    assert stage.losses() == [("a", 1, 1, "packet-too-large")]
    assert stage.broker.ledger.total == 1


def test_who_is_away_misses_a_large_message_for_one_reason_only() -> None:
    stage = Stage()
    sender = stage.client("s")
    reader = stage.client("r", expiry=60.0)
    reader.subscribe("a", limit_bytes=10)
    reader.drop()
    sender.publish("a", b"far too large")
    stage.settle()
    assert stage.losses() == [("a", 1, 1, "not-connected")]


# What is refused


@pytest.mark.parametrize("topic", ["", "a/+", "a/#", "a\0b", "x" * 5000, "/" * 200])
def test_a_topic_that_is_no_topic_is_refused_and_nothing_is_recorded(topic: str) -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("#")
    with pytest.raises(InvalidTopic):
        sender.publish(topic, b"x", retain=True)
    stage.settle()
    assert reader.connection.writes == []
    assert (len(stage.broker.topics), len(stage.broker.retained), stage.broker.history.head) == (0, 0, 0)


def test_clients_may_not_publish_to_topics_of_the_server() -> None:
    stage = Stage()
    with pytest.raises(NotAuthorized):
        stage.client("s").publish("$SYS/uptime", b"x")
    assert len(stage.broker.topics) == 0


def test_insights_are_published_by_whoever_a_rule_names_for_them(tmp_path: Path) -> None:
    rules = tmp_path / "acl"
    rules.write_text("anonymous\nboth #\n")
    access = FileAccess.load(None, rules, allow_anonymous=True)
    stage = Stage(access=access)
    client = stage.client("s")
    with pytest.raises(NotAuthorized):
        client.publish("$penstock/insights/hot/10s", b"x")  # `#` does not reach below `$`
    rules.write_text("anonymous\npublish $penstock/#\n")
    access.reload()
    stage.broker.recheck_rights()
    client.publish("$penstock/insights/hot/10s", b"x")
    with pytest.raises(NotAuthorized):
        client.publish("$penstock/drops", b"x")  # which is the server's own, whatever the rules say
    assert list(stage.broker.topics) == ["$penstock/insights/hot/10s"]


def test_the_server_publishes_to_its_own_topics() -> None:
    stage = Stage()
    reader, wild = stage.client("r"), stage.client("w")
    reader.subscribe("$SYS/#")
    wild.subscribe("#")
    stage.broker.publish_server("$SYS/uptime", b"5")
    stage.settle()
    assert reader.take_payloads() == [b"5"]
    assert wild.take_payloads() == []


def fenced(tmp_path: Path) -> FileAccess:
    rules = tmp_path / "acl"
    rules.write_text("anonymous\nboth open/#\n")
    return FileAccess.load(None, rules, allow_anonymous=True)


def test_a_forbidden_topic_is_refused_and_nothing_is_recorded(tmp_path: Path) -> None:
    stage = Stage(access=fenced(tmp_path))
    sender = stage.client("s")
    sender.publish("open/a", b"x")
    with pytest.raises(NotAuthorized):
        sender.publish("secret", b"x", retain=True)
    assert list(stage.broker.topics) == ["open/a"]
    assert stage.broker.history.head == 1


def test_one_receipt_tells_the_runs_of_a_chunk_apart_that_no_subscription_matches() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("heard/#")
    topics = [f"{'heard' if number % 2 else 'alone'}/{number}" for number in range(2 * TOPICS_REMEMBERED)]
    runs = [make_run(topic, b"x") for topic in topics]
    receipt = stage.broker.publish_all(runs, sender.session, lambda run, error: pytest.fail(str(error)))
    assert receipt.unmatched == TOPICS_REMEMBERED
    assert [run.topic for run in runs if not receipt.is_matched(run)] == topics[::2]
    assert (receipt.subscribers_of(topics[0]), receipt.subscribers_of(topics[1])) == (0, 1)
    assert receipt.ticket is None


def test_a_receipt_says_which_runs_need_a_commit() -> None:
    stage = Stage(CoreSettings(log=LogSettings(capture=("stored/#",))), disk=Disk())
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("wanted", 1)
    runs = [
        make_run("stored/a", b"x"),
        make_run("wanted", b"x", qos=1),
        make_run("value", b"x", retain=True),
        make_run("fleeting", b"x", qos=1),
    ]
    receipt = stage.broker.publish_all(runs, sender.session, lambda run, error: pytest.fail(str(error)))
    assert list(map(receipt.is_stored, runs)) == [True, True, True, False]
    assert receipt.ticket is not None


def test_a_refused_run_does_not_stop_the_others_of_its_chunk(tmp_path: Path) -> None:
    stage = Stage(access=fenced(tmp_path))
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("open/#")
    refused: list[tuple[str, str]] = []

    def refuse(run: Run, error: PenstockError) -> None:
        refused.append((run.topic, error.code))

    runs = [make_run(topic, b"x") for topic in ("open/a", "secret", "open/+", "open/b")]
    stage.broker.publish_all(runs, sender.session, refuse)
    stage.settle()
    assert refused == [("secret", "not-authorized"), ("open/+", "invalid-topic")]
    assert [d.topic for d in reader.take()] == ["open/a", "open/b"]
    assert [runs[0].offset, runs[3].offset] == [1, 2]


def test_there_may_be_only_so_many_topics() -> None:
    stage = Stage(CoreSettings(topic=TopicLimits(max_topics=2)))
    sender = stage.client("s")
    sender.publish("a", b"x")
    sender.publish("b", b"x")
    with pytest.raises(QuotaExceeded):
        sender.publish("c", b"x")
    assert sender.publish("a", b"x").run.sequence == 2


# Topic rules


async def test_a_rule_gives_its_topics_a_ring_of_their_own_size() -> None:
    stage = stage_with(TopicRule(filter="small/#", ring_messages=2))
    sender = stage.client("s")
    for payload in (b"1", b"2", b"3"):
        sender.publish("small/a", payload)
        sender.publish("other", payload)
    assert [run.payload() for run in await stage.broker.history.last("small/a", 9)] == [b"2", b"3"]
    assert [run.payload() for run in await stage.broker.history.last("other", 9)] == [b"1", b"2", b"3"]


def test_a_rule_gives_a_lifetime_to_messages_that_bring_none() -> None:
    stage = stage_with(TopicRule(filter="a", ttl_ms=2_000), default_ttl_ms=5_000)
    sender, now = stage.client("s"), stage.clock.monotonic()
    assert sender.publish("a", b"x").run.expires_at == now + 2.0
    assert sender.publish("a", b"x", ttl=9.0).run.expires_at == now + 9.0
    assert sender.publish("b", b"x").run.expires_at == now + 5.0


def test_the_first_rule_that_sets_a_value_wins() -> None:
    stage = stage_with(
        TopicRule(filter="a/+", ring_messages=1), TopicRule(filter="a/#", ring_messages=2, ttl_ms=1_000)
    )
    stage.client("s").publish("a/b", b"x")
    rules = stage.broker.topics["a/b"].rules
    assert (rules.ring_messages, rules.ttl) == (1, 1.0)


async def test_the_lifetime_of_a_long_run_holds_for_what_a_small_ring_keeps_of_it() -> None:
    stage = stage_with(TopicRule(filter="a", ttl_ms=1_000, ring_bytes=RUN_BYTES + 2))
    stage.client("s").publish("a", b"1", b"2", b"3", b"4")
    stage.clock.advance(2.0)
    chunk = await stage.broker.history.since_sequence("a", 0)
    assert chunk.runs == ()
    assert [(m.first, m.last, str(m.reason)) for m in chunk.statement.missing] == [
        (1, 2, "evicted"),
        (3, 4, "expired"),
    ]


def test_a_rule_may_set_the_policy_of_a_topic_for_everyone() -> None:
    settings = CoreSettings(
        topics=(TopicRule(filter="newest", policy=Policy.DROP_OLDEST),), outbox=OutboxSettings(messages=2)
    )
    stage = Stage(settings)
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("#", policy=Policy.DROP_NEWEST)
    reader.pause()
    for payload in (b"1", b"2", b"3"):
        sender.publish("newest", payload)
    stage.settle()
    reader.unpause()
    assert reader.take_payloads() == [b"2", b"3"]


BATCHED = TopicRule(filter="slow/#", batch_size=10, batch_timeout_ms=20)


def test_a_batched_topic_leaves_after_ten_messages() -> None:
    stage = stage_with(BATCHED)
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("slow/a")
    for number in range(9):
        sender.publish("slow/a", str(number).encode())
        stage.settle()
    assert reader.connection.writes == []
    sender.publish("slow/a", b"9")
    stage.settle()
    assert len(reader.connection.writes) == 1
    assert reader.take_payloads() == [str(number).encode() for number in range(10)]


def test_a_batched_topic_leaves_after_twenty_milliseconds() -> None:
    stage = stage_with(BATCHED)
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("slow/a")
    sender.publish("slow/a", b"1")
    stage.scheduler.advance(0.015)
    sender.publish("slow/a", b"2")
    assert reader.connection.writes == []
    stage.scheduler.advance(0.005)
    assert reader.take_payloads() == [b"1", b"2"]
    sender.publish("slow/a", b"3")  # the time begins anew with the next batch
    stage.scheduler.advance(0.019)
    assert reader.take_payloads() == []
    stage.scheduler.advance(0.001)
    assert reader.take_payloads() == [b"3"]


def test_a_run_of_many_messages_fills_a_batch_by_itself() -> None:
    stage = stage_with(BATCHED)
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("slow/a")
    sender.publish("slow/a", *[b"x"] * 12)
    stage.settle()
    assert len(reader.take()) == 12


def test_a_batched_topic_does_not_hold_up_another_of_the_same_audience() -> None:
    stage = stage_with(BATCHED)
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("#")
    runs = [make_run(topic, topic[-1:].encode()) for topic in ("fast/1", "slow/2", "fast/3", "slow/4")]
    stage.broker.publish_all(runs, sender.session, lambda run, error: pytest.fail(str(error)))
    stage.settle()
    assert reader.take_payloads() == [b"1", b"3"]
    stage.scheduler.advance(0.02)
    assert reader.take_payloads() == [b"2", b"4"]


def test_a_batch_that_fills_amid_a_chunk_keeps_its_place_among_the_others() -> None:
    stage = stage_with(TopicRule(filter="slow", batch_size=2, batch_timeout_ms=20))
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("#")
    topics = ("fast", "slow", "fast", "slow", "fast")
    runs = [make_run(topic, str(number).encode()) for number, topic in enumerate(topics)]
    stage.broker.publish_all(runs, sender.session, lambda run, error: pytest.fail(str(error)))
    stage.settle()
    assert reader.take_payloads() == [b"0", b"2", b"1", b"3", b"4"]


# After the flush


def test_a_publish_is_settled_after_the_flush_of_its_turn() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("a")
    written: list[int] = []
    receipt = sender.publish("a", b"x", qos=1)
    stage.broker.when_committed(receipt.ticket, lambda failure: written.append(len(reader.connection.writes)))
    assert written == []
    stage.settle()
    assert written == [1]


def test_a_kept_publish_has_a_ticket_of_the_log() -> None:
    stage = Stage(CoreSettings(log=LogSettings(capture=("kept/#",))), disk=Disk())
    sender = stage.client("s")
    assert sender.publish("other", b"x").ticket is None
    ticket = sender.publish("kept/a", b"1", b"2").ticket
    assert ticket is not None
    assert not stage.log.is_committed(ticket)
    stage.settle()
    assert stage.log.is_committed(ticket)
    assert [payloads_of(run) for run in stage.log.load((2, 3)).values()] == [[b"1"], [b"2"]]


def test_a_publish_whose_commit_failed_is_told_so_and_not_acknowledged() -> None:
    disk = Disk()
    stage = Stage(CoreSettings(log=LogSettings(capture=("#",))), disk=disk)
    told: list[Exception | None] = []
    disk.is_full = True
    stage.broker.when_committed(stage.client("s").publish("a", b"x", qos=1).ticket, told.append)
    stage.settle()
    assert [type(failure) for failure in told] == [StorageUnavailable]


# A slow disk


@pytest.mark.parametrize("qos", [0, 1])
def test_only_publishers_of_stored_messages_wait_for_a_slow_disk(qos: int) -> None:
    disk = Disk()
    stage = Stage(CoreSettings(log=LogSettings(capture=("kept/#",))), disk=disk)
    stored, other = stage.client("stored"), stage.client("other")
    stage.log.sequencer.room_bytes = 5
    stored.publish("kept/a", b"123", qos=qos)
    other.publish("free/a", b"x" * 100, qos=0)
    assert not stored.connection.blocks
    stored.publish("kept/a", b"456", qos=qos)
    assert stored.connection.is_blocked
    assert not other.connection.blocks
    assert disk.log is not None
    disk.log.catch_up()
    assert not stored.connection.is_blocked


def test_retained_values_wait_for_a_slow_disk_too() -> None:
    stage = Stage(disk=Disk())
    publisher = stage.client("publisher")
    stage.log.sequencer.room_bytes = 5
    publisher.publish("a", b"123456", retain=True)
    assert publisher.connection.is_blocked


def test_a_request_that_waits_for_the_disk_is_acknowledged_with_its_commit() -> None:
    disk = Disk()
    stage = Stage(CoreSettings(log=LogSettings(capture=("#",))), disk=disk)
    sender = stage.broker.request_sender(Identity(None, ""), Door.WEB)
    stage.log.sequencer.room_bytes = 0
    order: list[str] = []
    receipt = stage.broker.publish(make_run("a", b"1", qos=1, door=Door.WEB), sender)
    stage.broker.when_unblocked(sender, lambda: order.append("next request"))
    stage.broker.when_committed(
        receipt.ticket,
        lambda failure: stage.broker.when_acknowledgeable(sender, lambda: order.append("acknowledged")),
    )
    stage.settle()
    assert order == ["acknowledged"]
    assert disk.log is not None
    disk.log.catch_up()
    stage.settle()
    assert order == ["acknowledged", "next request"]
