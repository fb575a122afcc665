"""Streams: sending and receiving, in the three ways a send can be made."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from penstock.core.access.access import OpenAccess
from penstock.core.access.identity import Identity
from penstock.core.sessions.session import TOPICS_REMEMBERED
from penstock.core.settings import CoreSettings, OutboxSettings, StreamSettings
from penstock.core.streams.stream import GROUP, Stream
from penstock.errors import QuotaExceeded
from penstock.model import Door, Policy
from tests.core.streams.streaming import ANYONE, Crowd
from tests.support.broker import Stage


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def crowd(stage: Stage) -> Crowd:
    return Crowd(stage)


def limited(**limits: float) -> Stage:
    return Stage(CoreSettings(streams=StreamSettings(**limits)))  # type: ignore[arg-type]


# Circular: the oldest goes


def test_what_is_sent_is_received_once_with_its_stamps(stage: Stage, crowd: Crowd) -> None:
    sent = crowd.send(b"1", message_id="6d9c7f6e-0000-4000-8000-000000000001").receipt
    receive = crowd.receive()
    (handover,) = receive.handovers
    assert (handover.payload, handover.message_id) == (b"1", "6d9c7f6e-0000-4000-8000-000000000001")
    assert handover.content_type == "application/json"
    assert (handover.run.sequence, handover.run.offset, handover.epoch) == (1, sent.offset, 1)
    assert handover.run.published_at == sent.published_at == stage.clock.wall_us()
    assert crowd.receive().code == "wait-timeout"


def test_nothing_is_to_be_cancelled_of_what_is_decided_at_once(crowd: Crowd) -> None:
    assert crowd.send().wait is None
    assert crowd.receive().wait is None
    assert crowd.receive().wait is None


def test_a_full_stream_lets_the_oldest_go_and_the_ledger_knows(stage: Stage, crowd: Crowd) -> None:
    for number in range(5):
        crowd.send(b"%d" % number, size=3)
    assert crowd.take_all() == [b"2", b"3", b"4"]
    assert stage.losses(GROUP) == [("s", 1, 2, "outbox-full")]
    (row,) = stage.broker.ledger.rows(client_id=GROUP)
    assert (row.policy, row.setting) == (Policy.DROP_OLDEST, "streams")
    assert crowd.streams.buffers.dropped == 2


def test_the_first_send_decides_the_size(crowd: Crowd) -> None:
    crowd.send(b"0", size=2)
    for number in range(1, 5):
        crowd.send(b"%d" % number, size=50)
    assert crowd.take_all() == [b"3", b"4"]


def test_without_a_size_the_settings_decide() -> None:
    crowd = Crowd(limited(default_size=2))
    for number in range(4):
        crowd.send(b"%d" % number)
    assert crowd.take_all() == [b"2", b"3"]


def test_a_receive_that_came_first_leaves_the_size_to_the_first_send(crowd: Crowd) -> None:
    crowd.receive(wait=1.0)
    for number in range(4):
        crowd.send(b"%d" % number, size=2)
    assert crowd.take_all() == [b"2", b"3"]


def test_what_is_dropped_stays_in_the_history_of_the_topic(stage: Stage, crowd: Crowd) -> None:
    crowd.send(b"0", size=1)
    crowd.send(b"1")
    assert [run.payload() for run in stage.broker.topics["s"].runs] == [b"0", b"1"]


@pytest.mark.parametrize("size", [-1, 100_001])
def test_a_size_that_no_stream_can_have_is_refused_and_makes_nothing(
    stage: Stage, crowd: Crowd, size: int
) -> None:
    assert crowd.send(size=size).code == "invalid-request"
    assert crowd.send(size=size, wait=1.0).code == "invalid-request"
    assert (len(crowd.streams), "s" in stage.broker.topics) == (0, False)


def test_where_nothing_is_kept_a_send_that_does_not_wait_is_refused(stage: Stage, crowd: Crowd) -> None:
    assert crowd.send(size=0).code == "invalid-request"
    assert "s" not in stage.broker.topics
    crowd.send(size=0, wait=1.0)
    assert crowd.send(size=5).code == "invalid-request"


# Blocking: a send waits for room


def test_a_send_that_may_wait_is_taken_at_once_while_there_is_room(crowd: Crowd) -> None:
    assert [crowd.send(size=2, wait=1.0).receipt.sequence for _ in range(2)] == [1, 2]


def test_a_send_waits_for_room_and_is_published_only_then(stage: Stage, crowd: Crowd) -> None:
    reader = stage.client("r")
    reader.subscribe("s")
    crowd.send(b"0", size=1, wait=1.0)
    late = crowd.send(b"1", wait=1.0)
    stage.settle()
    assert late.is_waiting
    assert reader.take_payloads() == [b"0"]
    assert crowd.receive().payload == b"0"
    assert late.receipt.sequence == 2
    stage.settle()
    assert reader.take_payloads() == [b"1"]
    assert crowd.receive().payload == b"1"


def test_a_send_that_waits_in_vain_was_never_published(stage: Stage, crowd: Crowd) -> None:
    crowd.send(b"0", size=1)
    stage.scheduler.advance(10.0)
    late = crowd.send(b"1", wait=1.0)
    stage.scheduler.advance(0.98)
    assert late.is_waiting
    stage.scheduler.advance(0.04)
    assert late.code == "wait-timeout"
    assert stage.broker.topics["s"].sequence == 1
    assert crowd.take_all() == [b"0"]
    assert crowd.streams.counters.send_timeouts == 1


def test_sends_are_let_in_in_the_order_in_which_they_came(crowd: Crowd) -> None:
    crowd.send(b"0", size=1)
    for number in range(1, 4):
        crowd.send(b"%d" % number, wait=5.0)
    assert crowd.take_all() == [b"0", b"1", b"2", b"3"]


def test_nobody_overtakes_a_send_that_waits() -> None:
    stage = limited(stream_bytes=1_100)
    crowd = Crowd(stage)
    crowd.send(b"x" * 500)
    large = crowd.send(b"y" * 500, wait=5.0)
    small = crowd.send(b"z", wait=5.0)
    assert large.is_waiting
    assert small.is_waiting
    stage.scheduler.advance(1.0)
    large.cancel()
    assert small.receipt.sequence == 2, "the one who was in the way has gone"


def test_when_a_large_message_waits_in_vain_the_next_has_its_turn() -> None:
    stage = limited(stream_bytes=1_100)
    crowd = Crowd(stage)
    crowd.send(b"x" * 500)
    large = crowd.send(b"y" * 500, wait=1.0)
    small = crowd.send(b"z", wait=5.0)
    stage.scheduler.advance(1.1)
    assert large.code == "wait-timeout"
    assert small.receipt.sequence == 2


def test_a_sender_that_hangs_up_was_never_published(stage: Stage, crowd: Crowd) -> None:
    crowd.send(b"0", size=1)
    crowd.send(b"1", wait=5.0).cancel()
    assert crowd.take_all() == [b"0"]
    assert stage.broker.topics["s"].sequence == 1


def test_a_send_that_does_not_wait_takes_the_place_of_the_oldest_though_others_wait(crowd: Crowd) -> None:
    crowd.send(b"0", size=1)
    waiting = crowd.send(b"1", wait=5.0)
    crowd.send(b"2")
    assert waiting.is_waiting
    assert crowd.take_all() == [b"2", b"1"]


def test_nobody_waits_longer_than_the_settings_allow() -> None:
    stage = limited(max_timeout_s=2.0)
    crowd = Crowd(stage)
    crowd.send(size=1)
    late, poll = crowd.send(wait=1_000.0), crowd.receive("other", wait=1_000.0)
    stage.scheduler.advance(2.1)
    assert (late.code, poll.code) == ("wait-timeout", "wait-timeout")


# Sync: a send waits for a receiver


def test_without_size_a_send_waits_for_a_receiver(stage: Stage, crowd: Crowd) -> None:
    send = crowd.send(b"0", size=0, wait=5.0)
    assert send.is_waiting
    assert crowd.receive(wait=1.0).payload == b"0"
    assert send.receipt.sequence == 1
    assert crowd.receive().code == "wait-timeout"


def test_a_receive_without_time_meets_a_send_that_waits(crowd: Crowd) -> None:
    crowd.send(b"0", size=0, wait=5.0)
    assert crowd.receive().payload == b"0"


def test_without_size_a_send_meets_a_receiver_that_waits(crowd: Crowd) -> None:
    receive = crowd.receive(wait=5.0)
    send = crowd.send(b"0", size=0, wait=5.0)
    assert send.wait is None
    assert (send.receipt.sequence, receive.payload) == (1, b"0")


def test_without_size_and_receiver_nothing_is_published(stage: Stage, crowd: Crowd) -> None:
    send = crowd.send(size=0, wait=1.0)
    stage.scheduler.advance(1.1)
    assert send.code == "wait-timeout"
    assert stage.broker.topics["s"].sequence == 0
    assert crowd.receive().code == "wait-timeout"


def test_without_size_nothing_is_published_for_a_receiver_that_has_gone(stage: Stage, crowd: Crowd) -> None:
    crowd.receive(wait=5.0, is_gone=True)
    send = crowd.send(b"0", size=0, wait=2.0)
    assert send.is_waiting
    assert stage.broker.topics["s"].sequence == 0
    assert crowd.streams.counters.receivers_waiting == 0, "it has left the line"
    assert crowd.receive().payload == b"0"
    assert send.receipt.sequence == 1


def test_a_send_that_finds_only_receivers_that_have_gone_waits_in_vain(stage: Stage, crowd: Crowd) -> None:
    send = crowd.send(b"0", size=0, wait=1.0)
    crowd.receive(wait=5.0, is_gone=True)
    stage.scheduler.advance(1.1)
    assert send.code == "wait-timeout"
    assert stage.broker.topics["s"].sequence == 0


def test_what_was_handed_to_a_receiver_in_the_moment_it_went_stays_though_nothing_is_kept(
    stage: Stage, crowd: Crowd
) -> None:
    receive = crowd.receive(wait=5.0)
    receive.is_gone = receive.seems_here = True
    assert crowd.send(b"0", size=0, wait=5.0).receipt.sequence == 1
    stage.client("c").publish("s", b"published")
    stage.settle()
    assert stage.losses(GROUP) == [("s", 2, 2, "outbox-full")]
    assert crowd.take_all() == [b"0"]
    stage.client("c").publish("s", b"published")
    stage.settle()
    assert crowd.take_all() == []


# Receivers


def test_receivers_are_served_in_the_order_in_which_they_came(crowd: Crowd) -> None:
    receives = [crowd.receive(wait=5.0) for _ in range(3)]
    for number in range(3):
        crowd.send(b"%d" % number)
    assert [receive.payload for receive in receives] == [b"0", b"1", b"2"]


def test_a_receiver_that_waits_in_vain_is_told(stage: Stage, crowd: Crowd) -> None:
    receive = crowd.receive(wait=1.0)
    stage.scheduler.advance(0.98)
    assert receive.is_waiting
    stage.scheduler.advance(0.04)
    assert receive.code == "wait-timeout"
    crowd.send(b"0")
    assert receive.handovers == []
    assert crowd.streams.counters.receive_timeouts == 1


def test_a_receiver_that_hangs_up_leaves_the_line(crowd: Crowd) -> None:
    first, second = crowd.receive(wait=5.0), crowd.receive(wait=5.0)
    first.cancel()
    first.cancel()
    crowd.send(b"0")
    assert first.is_waiting
    assert second.payload == b"0"


@pytest.mark.parametrize("is_there_first", [True, False])
def test_a_receiver_that_has_gone_gives_its_message_back_to_the_front(
    crowd: Crowd, is_there_first: bool
) -> None:
    if is_there_first:
        crowd.receive(wait=5.0, is_gone=True)
    crowd.send(b"0")
    crowd.send(b"1")
    if not is_there_first:
        crowd.receive(is_gone=True)
    assert crowd.take_all() == [b"0", b"1"]
    assert crowd.streams.counters.given_back == 1


def test_the_next_in_line_gets_what_one_who_has_gone_did_not_take(crowd: Crowd) -> None:
    crowd.receive(wait=5.0, is_gone=True)
    second = crowd.receive(wait=5.0)
    crowd.send(b"0", size=0, wait=1.0)
    assert second.payload == b"0"


def test_an_error_of_a_receiver_loses_no_message(crowd: Crowd) -> None:
    def fail(handover: object) -> bool:
        raise ValueError("no")

    crowd.send(b"0")
    with pytest.raises(ValueError, match="no"):
        crowd.streams.receive("s", Identity(None, ""), 0.0, fail, lambda error: None)
    assert crowd.receive().payload == b"0"


def test_a_receiver_may_receive_again_while_it_is_served(stage: Stage, crowd: Crowd) -> None:
    taken: list[bytes] = []

    def take_again(handover: object) -> bool:
        taken.append(handover.payload)  # type: ignore[attr-defined]
        crowd.streams.receive("s", Identity(None, ""), 5.0, take_again, lambda error: None)
        return True

    crowd.send(b"0", size=1)
    sends = [crowd.send(b"%d" % number, wait=5.0) for number in range(1, 5)]
    crowd.streams.receive("s", Identity(None, ""), 5.0, take_again, lambda error: None)
    assert taken == [b"0", b"1", b"2", b"3", b"4"]
    assert [send.receipt.sequence for send in sends] == [2, 3, 4, 5]


def test_a_receive_without_time_at_an_unknown_stream_makes_nothing(stage: Stage, crowd: Crowd) -> None:
    assert crowd.receive("t").code == "wait-timeout"
    assert (len(crowd.streams), "t" in stage.broker.topics) == (0, False)


def test_many_in_one_line_are_served_in_no_more_time_each(crowd: Crowd) -> None:
    receives = [crowd.receive(wait=5.0) for _ in range(20_000)]
    for receive in receives[::2]:
        receive.cancel()
    for number in range(10_000):
        crowd.send(b"%d" % number)
    assert [receive.payload for receive in receives[1::2]] == [b"%d" % number for number in range(10_000)]


# Other doors


def test_what_other_doors_publish_reaches_a_receiver_that_waits(stage: Stage, crowd: Crowd) -> None:
    receives = [crowd.receive(wait=5.0) for _ in range(2)]
    stage.client("c").publish("s", b"0", b"1", b"2")
    assert receives[0].is_waiting, "nobody is called back while something is published"
    stage.settle()
    assert [receive.payload for receive in receives] == [b"0", b"1"]
    assert crowd.receive().payload == b"2"


def test_what_other_doors_publish_is_kept_by_a_stream_that_is_there(stage: Stage, crowd: Crowd) -> None:
    device = stage.client("c")
    device.publish("s", b"early")
    crowd.send(b"0", size=3)
    device.publish("s", b"1", b"2", b"3", b"4")
    stage.settle()
    assert crowd.take_all() == [b"2", b"3", b"4"]
    assert stage.losses(GROUP) == [("s", 2, 3, "outbox-full")]


def test_what_somebody_waits_for_takes_no_room(stage: Stage, crowd: Crowd) -> None:
    receives = [crowd.receive(wait=5.0) for _ in range(3)]
    crowd.send(b"first", size=1)
    stage.client("c").publish("s", b"0", b"1", b"2")
    stage.settle()
    assert [receive.payload for receive in receives] == [b"first", b"0", b"1"]
    assert crowd.take_all() == [b"2"]
    assert stage.losses(GROUP) == []


def test_a_burst_takes_nothing_from_those_who_wait(stage: Stage, crowd: Crowd) -> None:
    crowd.send(size=1)
    crowd.receive()
    receives = [crowd.receive(wait=5.0) for _ in range(2)]
    stage.client("c").publish("s", *(b"%d" % number for number in range(5)))
    stage.settle()
    assert [receive.payload for receive in receives] == [b"0", b"1"]
    assert crowd.take_all() == [b"4"]
    assert stage.losses(GROUP) == [("s", 4, 5, "outbox-full")]


def test_a_stream_never_keeps_more_than_it_may_not_even_within_a_turn(stage: Stage, crowd: Crowd) -> None:
    crowd.send(size=3)
    stage.client("c").publish("s", *[b"x"] * 10)
    assert crowd.streams.buffers.messages == 3


def test_what_receivers_that_had_gone_did_not_take_has_to_fit_in(stage: Stage, crowd: Crowd) -> None:
    crowd.send(size=1)
    crowd.receive()
    for _ in range(2):
        crowd.receive(wait=5.0, is_gone=True)
    stage.client("c").publish("s", b"0", b"1", b"2")
    stage.settle()
    assert crowd.streams.buffers.messages == 1
    assert crowd.take_all() == [b"2"]
    assert stage.losses(GROUP) == [("s", 2, 3, "outbox-full")]


def test_who_comes_while_something_is_on_its_way_stands_behind_who_waits(stage: Stage, crowd: Crowd) -> None:
    first = crowd.receive(wait=5.0)
    stage.client("c").publish("s", b"0")
    second = crowd.receive(wait=5.0)
    stage.settle()
    assert first.payload == b"0"
    assert second.is_waiting


def test_order_is_that_of_publishing_whichever_door_it_was(stage: Stage, crowd: Crowd) -> None:
    receives = [crowd.receive(wait=5.0) for _ in range(3)]
    stage.client("c").publish("s", b"0")
    crowd.send(b"1")
    stage.client("d").publish("s", b"2")
    stage.settle()
    assert [receive.payload for receive in receives] == [b"0", b"1", b"2"]


def test_where_nothing_is_kept_what_other_doors_publish_waits_for_no_one(stage: Stage, crowd: Crowd) -> None:
    waiting = crowd.send(b"sent", size=0, wait=5.0)
    stage.client("c").publish("s", b"published")
    stage.settle()
    assert waiting.is_waiting
    assert stage.losses(GROUP) == [("s", 1, 1, "outbox-full")]
    assert crowd.receive().payload == b"sent"


def test_others_get_what_is_sent_like_any_other_message(stage: Stage, crowd: Crowd) -> None:
    reader, group = stage.client("r"), stage.client("g")
    reader.subscribe("#")
    group.subscribe("$share/g/s")
    crowd.send(b"0")
    crowd.receive()
    stage.settle()
    assert reader.take_payloads() == group.take_payloads() == [b"0"]
    topic = stage.broker.topics["s"]
    assert (topic.published, topic.delivered) == (1, 3)
    assert stage.broker.counters.delivered == 3


def test_a_publisher_that_is_held_back_sends_when_it_is_free() -> None:
    stage = Stage(CoreSettings(outbox=OutboxSettings(messages=1)))
    crowd = Crowd(stage)
    slow = stage.client("slow")
    slow.subscribe("s", policy=Policy.BLOCK)
    slow.pause()
    for _ in range(3):
        crowd.send(b"0")
        stage.settle()
    held, given_up = crowd.send(b"late"), crowd.send(b"gone")
    given_up.cancel()
    assert held.is_waiting
    slow.unpause()
    stage.settle()
    assert held.receipt.sequence > 0
    assert given_up.is_waiting
    assert crowd.take_all()[-1] == b"late"


def test_who_was_held_back_and_then_waits_for_room_can_still_hang_up(stage: Stage, crowd: Crowd) -> None:
    crowd.send(b"0", size=1)
    connection = stage.broker.request_sender(ANYONE, Door.STREAMS).connection
    assert connection is not None
    connection.block(is_unacknowledged=False)
    held = crowd.send(b"1", wait=5.0)
    connection.unblock()
    stage.settle()
    assert crowd.streams.counters.senders_waiting == 1
    held.cancel()
    assert crowd.take_all() == [b"0"]


# Rights


class Rules(OpenAccess):
    """Allows some, and can be changed."""

    def __init__(self) -> None:
        self.readers = {"ada"}
        self.writers = {"ada"}
        self.unknown: set[str | None] = set()
        self.outdated: set[str | None] = set()

    def is_outdated(self, identity: Identity) -> bool:
        return identity.user in self.outdated

    def is_known(self, identity: Identity) -> bool:
        return identity.user not in self.unknown

    def may_subscribe(self, identity: Identity, filter: str) -> bool:
        return identity.user in self.readers

    def may_publish(self, identity: Identity, topic: str) -> bool:
        return identity.user in self.writers


ADA, BOB = Identity("ada", ""), Identity("bob", "")


@pytest.fixture
def rules() -> Rules:
    return Rules()


@pytest.fixture
def guarded(rules: Rules) -> Stage:
    return Stage(access=rules)


def test_sending_needs_the_right_to_publish_and_receiving_that_to_subscribe(guarded: Stage) -> None:
    crowd = Crowd(guarded)
    assert crowd.send(identity=BOB).code == "not-authorized"
    assert crowd.receive(identity=BOB, wait=1.0).code == "not-authorized"
    assert "s" not in guarded.broker.topics
    assert crowd.send(b"0", identity=ADA).receipt.sequence == 1
    assert crowd.receive(identity=ADA).payload == b"0"


def test_who_loses_its_rights_waits_no_longer_and_gets_nothing(guarded: Stage, rules: Rules) -> None:
    crowd = Crowd(guarded)
    assert crowd.receive(identity=ADA).code == "wait-timeout"
    crowd.send(b"0", size=1, identity=ADA)
    send, receive = crowd.send(b"1", wait=5.0, identity=ADA), crowd.receive("t", wait=5.0, identity=ADA)
    rules.readers, rules.writers = {"bob"}, {"bob"}
    guarded.broker.recheck_rights()
    assert (send.code, receive.code) == ("not-authorized", "not-authorized")
    assert crowd.receive(identity=ADA).code == "not-authorized"
    assert crowd.receive(identity=BOB).payload == b"0"


def test_whose_password_was_replaced_waits_no_longer(guarded: Stage, rules: Rules) -> None:
    crowd = Crowd(guarded)
    receive = crowd.receive(wait=5.0, identity=ADA)
    rules.outdated.add("ada")
    guarded.broker.recheck_rights()
    assert receive.code == "not-authorized"


def test_who_is_not_known_any_more_waits_no_longer(guarded: Stage, rules: Rules) -> None:
    crowd = Crowd(guarded)
    crowd.send(size=1, identity=ADA)
    send, receive = crowd.send(wait=5.0, identity=ADA), crowd.receive("t", wait=5.0, identity=ADA)
    rules.unknown.add("ada")
    guarded.broker.recheck_rights()
    assert (send.code, receive.code) == ("not-authorized", "not-authorized")


def test_when_a_large_message_is_forbidden_meanwhile_the_next_has_its_turn(rules: Rules) -> None:
    stage = Stage(CoreSettings(streams=StreamSettings(stream_bytes=1_100)), access=rules)
    crowd = Crowd(stage)
    rules.writers = {"ada", "bob"}
    crowd.send(b"x" * 500, identity=ADA)
    crowd.send(b"y" * 500, wait=5.0, identity=BOB)
    small = crowd.send(b"z", wait=5.0, identity=ADA)
    rules.writers = {"ada"}
    stage.broker.recheck_rights()
    assert small.receipt.sequence == 2


def test_a_send_that_is_refused_when_its_turn_comes_is_told_and_the_next_goes_on(
    guarded: Stage, rules: Rules
) -> None:
    crowd = Crowd(guarded)
    rules.writers = {"ada", "bob"}
    crowd.send(b"0", size=1, identity=ADA)
    refused, accepted = crowd.send(wait=5.0, identity=BOB), crowd.send(b"1", wait=5.0, identity=ADA)
    for number in range(TOPICS_REMEMBERED):
        crowd.send(topic=f"t/{number}", identity=BOB)
    rules.writers = {"ada"}
    crowd.receive(identity=ADA)
    assert refused.code == "not-authorized"
    assert accepted.receipt.sequence == 2


def test_who_keeps_its_rights_goes_on_waiting(guarded: Stage, rules: Rules) -> None:
    crowd = Crowd(guarded)
    receive = crowd.receive(wait=5.0, identity=ADA)
    guarded.broker.recheck_rights()
    crowd.send(b"0", identity=ADA)
    assert receive.payload == b"0"


@pytest.mark.parametrize("topic", ["", "a/#", "+", "a\0"])
def test_a_name_that_is_no_topic_is_refused(crowd: Crowd, topic: str) -> None:
    assert crowd.send(topic=topic).code == "invalid-topic"
    assert crowd.receive(topic, wait=1.0).code == "invalid-topic"


def test_nobody_sends_to_the_servers_own_topics(crowd: Crowd) -> None:
    assert crowd.send(topic="$SYS/x").code == "not-authorized"


# Limits


def test_a_payload_that_is_too_large_is_refused() -> None:
    crowd = Crowd(Stage(CoreSettings(max_payload_bytes=10)))
    assert crowd.send(b"x" * 11).code == "too-large"
    assert crowd.send(b"x" * 10).receipt.sequence == 1


def test_a_message_that_no_stream_can_keep_is_refused() -> None:
    assert Crowd(limited(stream_bytes=300)).send(b"x" * 100).code == "too-large"


def test_a_stream_keeps_only_so_many_bytes() -> None:
    stage = limited(stream_bytes=1_000)
    crowd = Crowd(stage)
    for number in range(4):
        crowd.send(b"%d" % number * 200)
    assert [payload[:1] for payload in crowd.take_all()] == [b"2", b"3"]
    assert stage.losses(GROUP) == [("s", 1, 2, "outbox-full")]


def test_all_streams_together_keep_only_so_many_bytes() -> None:
    stage = limited(total_bytes=1_000)
    crowd = Crowd(stage)
    crowd.send(b"x" * 200, "a")
    crowd.send(b"y" * 200, "b")
    assert crowd.send(b"z" * 200, "c").code == "quota-exceeded"
    crowd.send(b"Y" * 200, "b")
    assert crowd.take_all("b") == [b"Y" * 200], "a stream makes room for its own"
    stage.client("d").publish("a", b"z" * 400)
    stage.settle()
    assert crowd.take_all("a") == [b"z" * 400]


def test_a_send_that_waits_for_what_other_streams_take_gets_it_when_they_leave_it() -> None:
    stage = limited(total_bytes=1_300)
    crowd = Crowd(stage)
    crowd.send(b"x" * 200, "a")
    crowd.send(b"y" * 200, "b")
    waiting = [crowd.send(b"Y" * 200, topic, wait=60.0) for topic in ("b", "c")]
    assert all(each.is_waiting for each in waiting)
    crowd.receive("a")
    stage.advance(1.0)
    assert [each.is_waiting for each in waiting] == [False, True]
    crowd.take_all("b")
    stage.advance(1.0)
    assert waiting[1].receipt.sequence == 1


def test_what_somebody_waits_for_needs_no_room() -> None:
    crowd = Crowd(limited(total_bytes=1_000))
    crowd.send(b"x" * 700, "a")
    receive = crowd.receive("b", wait=5.0)
    crowd.send(b"y" * 200, "b")
    assert receive.payload == b"y" * 200


def test_there_are_only_so_many_streams_and_waits() -> None:
    stage = limited(max_streams=2, max_waiting=2)
    crowd = Crowd(stage)
    crowd.send(topic="a", size=1)
    crowd.receive("b", wait=5.0)
    assert crowd.send(topic="c").code == "quota-exceeded"
    assert crowd.receive("c", wait=5.0).code == "quota-exceeded"
    waiting = crowd.send(topic="a", wait=5.0)
    assert crowd.receive("b", wait=5.0).code == "quota-exceeded"
    assert crowd.send(topic="a", wait=5.0).code == "quota-exceeded"
    waiting.cancel()
    assert crowd.receive("b", wait=5.0).is_waiting


def test_who_need_not_wait_is_served_however_many_wait() -> None:
    crowd = Crowd(limited(max_waiting=2))
    sends = [crowd.send(b"%d" % number, size=0, wait=5.0) for number in range(2)]
    assert crowd.send(wait=5.0).code == crowd.receive("t", wait=5.0).code == "quota-exceeded"
    assert crowd.receive("t").code == "wait-timeout"
    assert crowd.receive().payload == b"0"
    assert crowd.receive(wait=5.0).payload == b"1"
    assert [send.receipt.sequence for send in sends] == [1, 2]


def test_those_who_wait_for_news_count_among_those_who_wait() -> None:
    stage = limited(max_waiting=2)
    crowd = Crowd(stage)
    waits = [crowd.streams.when_published("s", lambda: None) for _ in range(2)]
    assert crowd.receive(wait=5.0).code == "quota-exceeded"
    with pytest.raises(QuotaExceeded):
        crowd.streams.when_published("t", lambda: None)
    waits[0].cancel()
    waits[0].cancel()
    assert crowd.receive(wait=5.0).is_waiting
    stage.client("c").publish("s", b"x")
    stage.settle()
    assert crowd.receive("t", wait=5.0).is_waiting
    assert crowd.receive("t", wait=5.0).is_waiting


# Those who wait make no topics


def test_a_topic_that_somebody_only_waits_for_is_none_for_others(stage: Stage, crowd: Crowd) -> None:
    receive = crowd.receive(wait=5.0)
    crowd.streams.when_published("t", lambda: None)
    assert not stage.broker.has_topic("s") and not stage.broker.has_topic("t")
    assert list(stage.broker.topics) == []
    stage.client("c").publish("s", b"0")
    stage.settle()
    assert receive.payload == b"0"
    assert list(stage.broker.topics) == ["s"]
    assert list(stage.broker.topics.expected) == ["t"]


def test_nothing_is_left_of_a_topic_that_nobody_waits_for_any_more(stage: Stage, crowd: Crowd) -> None:
    crowd.receive(wait=5.0)
    stage.advance(310.0)
    assert (len(crowd.streams), stage.broker.topics.expected) == (0, {})


def test_a_stream_too_many_leaves_no_topic() -> None:
    stage = limited(max_streams=1)
    crowd = Crowd(stage)
    crowd.receive("a", wait=5.0)
    assert crowd.receive("b", wait=5.0).code == "quota-exceeded"
    assert list(stage.broker.topics.expected) == ["a"]


def test_what_has_expired_is_not_received_and_leaves_room(stage: Stage, crowd: Crowd) -> None:
    crowd.send(b"0", size=2, ttl=10.0)
    crowd.send(b"1")
    waiting = crowd.send(b"2", wait=60.0)
    stage.advance(11.0)
    assert waiting.receipt.sequence == 3
    assert crowd.take_all() == [b"1", b"2"]
    assert stage.losses(GROUP) == [("s", 1, 1, "expired")]


def test_each_message_expires_in_its_own_time(stage: Stage, crowd: Crowd) -> None:
    for number, ttl in enumerate([10.0, 20.0, 15.0]):
        crowd.send(b"%d" % number, ttl=ttl)
    kept = []
    for seconds in (11.0, 5.0, 5.0):
        stage.advance(seconds)
        kept.append(crowd.streams.buffers.messages)
    assert kept == [2, 1, 0]
    assert sorted(stage.losses(GROUP)) == [("s", 1, 1, "expired"), ("s", 2, 3, "expired")]


def test_nobody_looks_at_a_stream_before_something_in_it_expires(stage: Stage, crowd: Crowd) -> None:
    for number in range(3):
        crowd.send(b"late", f"{number}", ttl=1_000.0)
    crowd.send(b"soon", "0", ttl=10.0)
    looked_at: list[str] = []
    expiring = crowd.streams.buffers._expiring
    take = expiring.take

    def note(now: float) -> Stream | None:
        stream = take(now)
        looked_at.extend([] if stream is None else [stream.topic.name])
        return stream

    expiring.take = note  # type: ignore[method-assign]
    stage.advance(20.0)
    assert looked_at == ["0"]
    assert crowd.streams.buffers.messages == 3


def test_what_has_expired_a_moment_ago_is_not_received_either(stage: Stage, crowd: Crowd) -> None:
    crowd.send(b"0", ttl=0.5)
    stage.scheduler.advance(0.6)
    assert crowd.receive().code == "wait-timeout"
    assert stage.losses(GROUP) == [("s", 1, 1, "expired")]


# Going


def test_a_stream_that_is_empty_and_not_used_is_forgotten_with_its_size(stage: Stage, crowd: Crowd) -> None:
    crowd.send(size=1)
    crowd.receive()
    stage.advance(299.0)
    assert len(crowd.streams) == 1
    stage.advance(1.0)
    assert len(crowd.streams) == 0
    assert stage.broker.topics["s"].stream is None
    crowd.send(b"0", size=2)
    crowd.send(b"1")
    assert crowd.take_all() == [b"0", b"1"]


@pytest.mark.parametrize("use", ["receive", "wait to receive", "wait to send"])
def test_a_stream_is_idle_from_when_it_was_last_used(use: str) -> None:
    stage = limited(idle_s=10.0)
    crowd = Crowd(stage)
    if use == "receive":
        crowd.send(b"0")
        stage.advance(8.0)
        crowd.receive()
    elif use == "wait to receive":
        crowd.receive(wait=8.0)
        stage.advance(8.0)
    else:
        crowd.send(size=0, wait=8.0)
        stage.advance(8.0)
    stage.advance(9.0)
    assert len(crowd.streams) == 1
    stage.advance(1.0)
    assert len(crowd.streams) == 0


def test_a_stream_with_messages_that_were_sent_is_forgotten_much_later(stage: Stage, crowd: Crowd) -> None:
    crowd.send(b"0")
    crowd.send(b"1")
    stage.advance(3_500.0)
    assert crowd.receive().payload == b"0"
    stage.advance(3_500.0)
    assert len(crowd.streams) == 1
    stage.advance(200.0)
    assert len(crowd.streams) == 0
    assert stage.losses(GROUP) == [("s", 2, 2, "session-ended")]
    assert crowd.streams.buffers.messages == 0


def test_a_stream_at_which_somebody_waits_is_not_forgotten() -> None:
    stage = limited(idle_s=1.0)
    crowd = Crowd(stage)
    receive = crowd.receive(wait=100.0)
    stage.advance(50.0)
    crowd.send(b"0")
    assert receive.payload == b"0"


def test_what_others_published_is_kept_as_long_though_nobody_ever_sent(stage: Stage, crowd: Crowd) -> None:
    crowd.receive(wait=1.0)
    stage.advance(2.0)
    stage.client("c").publish("s", b"0")
    stage.advance(3_500.0)
    assert len(crowd.streams) == 1
    stage.advance(200.0)
    assert len(crowd.streams) == 0
    assert stage.losses(GROUP) == [("s", 1, 1, "session-ended")]
    assert (crowd.streams.buffers.messages, crowd.streams.buffers.bytes) == (0, 0)


def test_between_two_polls_nothing_is_lost_that_other_doors_publish(stage: Stage, crowd: Crowd) -> None:
    crowd.receive(wait=1.0)
    stage.advance(2.0)
    stage.client("c").publish("s", b"0")
    stage.settle()
    assert crowd.receive(wait=1.0).payload == b"0"


def test_a_topic_with_a_stream_is_in_use(stage: Stage, crowd: Crowd) -> None:
    receive = crowd.receive(wait=50.0)
    assert stage.broker.topics.forget_unused() == 0
    crowd.send(b"0")
    assert receive.payload == b"0"


def test_a_deleted_topic_takes_its_stream_with_it(stage: Stage, crowd: Crowd) -> None:
    crowd.send(b"0", size=1)
    send, receive = crowd.send(b"1", wait=5.0), crowd.receive("t", wait=5.0)
    stage.broker.declare_topic("t")
    for name in ("s", "t"):
        stage.broker.delete_topic(name)
    stage.settle()
    assert (send.code, receive.code) == ("wait-timeout", "wait-timeout")
    assert stage.losses(GROUP) == [("s", 1, 1, "session-ended")]
    assert crowd.send(b"2", size=3).receipt.sequence == 2
    assert crowd.take_all() == [b"2"]
    stage.advance(1.0)
    assert len(crowd.streams) == 1


def test_nobody_sends_to_a_stream_that_was_deleted(stage: Stage, crowd: Crowd) -> None:
    crowd.send(b"0", size=1)
    first, second = crowd.send(b"1", wait=5.0), crowd.send(b"2", wait=5.0)
    stage.broker.delete_topic("s")
    first.cancel()
    stage.settle()
    assert second.code == "wait-timeout"
    assert "s" not in stage.broker.topics


def test_a_server_that_drains_lets_nobody_wait(stage: Stage, crowd: Crowd) -> None:
    woken: list[bool] = []
    crowd.streams.when_published("s", lambda: woken.append(True))
    crowd.send(b"0", size=1)
    waits: list[Any] = [crowd.send(wait=5.0), crowd.send(wait=5.0), crowd.receive("t", wait=5.0)]
    stage.settle()
    crowd.streams.when_published("t", lambda: woken.append(True))
    crowd.streams.drain()
    assert [wait.code for wait in waits] == ["shutting-down"] * 3
    assert crowd.send().code == crowd.send(wait=1.0).code == crowd.receive().code == "shutting-down"
    crowd.streams.when_published("t", lambda: woken.append(True))
    assert woken == [True] * 3
    assert crowd.streams.is_draining


def test_a_broker_that_stops_drains_its_streams(stage: Stage, crowd: Crowd) -> None:
    receive = crowd.receive(wait=5.0)
    stage.broker.stop()
    assert receive.code == "shutting-down"


def test_what_nobody_received_is_recorded_when_the_server_ends(stage: Stage, crowd: Crowd) -> None:
    crowd.send(b"0")
    crowd.send(b"1")
    stage.broker.stop()
    stage.broker.close()
    assert stage.losses(GROUP) == [("s", 1, 2, "session-ended")]


def test_it_is_told_once_how_much_is_given_up_when_the_server_ends(stage: Stage, crowd: Crowd) -> None:
    for topic in ("a", "a", "b"):
        crowd.send(topic=topic)
    crowd.receive("c", wait=5.0)
    stage.broker.stop()
    with capture_logs() as logs:
        stage.broker.close()
    assert logs == [{"event": "streams given up", "log_level": "warning", "messages": 3, "streams": 2}]


def test_who_has_nothing_to_give_up_says_nothing(stage: Stage, crowd: Crowd) -> None:
    crowd.send()
    crowd.receive()
    with capture_logs() as logs:
        stage.broker.close()
    assert logs == []


# Figures


def test_nothing_is_left_to_be_done_for_those_who_were_served(stage: Stage, crowd: Crowd) -> None:
    crowd.receive(wait=5.0)
    crowd.send(size=1)
    crowd.send()
    crowd.send(wait=5.0)
    crowd.receive()
    crowd.receive("t", wait=5.0).cancel()
    stage.scheduler.advance(6.0)
    assert stage.scheduler.timers == 0
    assert (crowd.streams.counters.receive_timeouts, crowd.streams.counters.send_timeouts) == (0, 0)


def test_it_is_counted_who_waited_for_whom_and_how_long(stage: Stage, crowd: Crowd) -> None:
    counters = crowd.streams.counters
    receive = crowd.receive(wait=5.0)
    assert counters.receivers_waiting == 1
    stage.scheduler.advance(2.0)
    crowd.send(size=1)
    assert receive.handovers
    crowd.send()
    late = crowd.send(wait=5.0)
    assert (counters.senders_waiting, counters.receivers_waiting) == (1, 0)
    stage.scheduler.advance(3.0)
    crowd.receive()
    assert late.receipt.sequence == 3
    assert (counters.sends, counters.met_receiver, counters.met_message) == (3, 1, 1)
    assert (counters.receive_waits.count, counters.receive_waits.seconds) == (2, 2.0)
    assert (counters.send_waits.count, counters.send_waits.seconds) == (3, 3.0)
    assert (crowd.streams.buffers.messages, len(crowd.streams)) == (1, 1)
