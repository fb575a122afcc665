"""Streams against a naive model: whatever happens in whatever order, everyone gets what the rules say."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.core.settings import CoreSettings, RingSettings, StreamSettings
from penstock.core.streams.stream import GROUP
from tests.core.streams.streaming import Crowd, Receive, Send
from tests.support.broker import Client, Stage
from tests.support.examples import examples

DEFAULT_SIZE = 3
FOREVER = 10_000.0
WAITS = st.sampled_from([0.0, 1.5, 2.5, 5.5])
"""Half a second beside the times at which the model looks at the clock."""


class NaiveSend:
    """A send, as the rules see it."""

    def __init__(self, payload: bytes, deadline: float) -> None:
        self.payload = payload
        self.deadline = deadline
        self.outcome = "waiting"


class NaiveReceive:
    """A receive, as the rules see it."""

    def __init__(self, deadline: float, is_gone: bool) -> None:
        self.deadline = deadline
        self.is_gone = is_gone
        self.outcome: bytes | str = "waiting"


class NaiveStream:
    """The rules in plain lists."""

    def __init__(self) -> None:
        self.size: int | None = None
        self.is_there = False
        self.kept: list[bytes] = []
        self.receives: list[NaiveReceive] = []
        self.sends: list[NaiveSend] = []
        self.published: list[bytes] = []
        self.dropped: list[bytes] = []
        self.returned = 0

    def send(self, send: NaiveSend, size: int | None, wait: float) -> None:
        wanted = DEFAULT_SIZE if size is None else size
        if not (wanted if self.size is None else self.size) and not wait:
            send.outcome = "invalid-request"
            return
        self.is_there = True
        self.size = wanted if self.size is None else self.size
        if wait and (self.sends or not self._can_take()):
            self.sends.append(send)
            return
        self._accept(send)
        if not wait:
            self._trim()

    def receive(self, receive: NaiveReceive, wait: float) -> None:
        if self.kept and not self.receives:
            self._hand_over(receive)
            self._let_in()
            return
        self.is_there = self.is_there or wait > 0
        self.receives.append(receive)
        self._let_in()
        if receive in self.receives and not wait:
            self.receives.remove(receive)
            receive.outcome = "wait-timeout"

    def publish(self, payloads: list[bytes]) -> None:
        self.published += payloads
        if self.is_there:
            for payload in payloads:
                self.kept.append(payload)
                self._trim()
            self._match()
            self._trim()
            self._let_in()

    def pass_time(self, now: float) -> None:
        for receive in [each for each in self.receives if each.deadline <= now]:
            self.receives.remove(receive)
            receive.outcome = "wait-timeout"
        for send in [each for each in self.sends if each.deadline <= now]:
            self.sends.remove(send)
            send.outcome = "wait-timeout"
        self._let_in()

    def leave(self, who: NaiveSend | NaiveReceive) -> None:
        for line in (self.sends, self.receives):
            if who in line:
                line.remove(who)  # type: ignore[arg-type]
        self._let_in()

    def _accept(self, send: NaiveSend) -> None:
        send.outcome = "accepted"
        self.published.append(send.payload)
        self.kept.append(send.payload)
        self._match()

    def _can_take(self) -> bool:
        limit = DEFAULT_SIZE if self.size is None else self.size
        if len(self.kept) < limit:
            return True
        while not self.kept and self.receives and self.receives[0].is_gone:
            self.receives.pop(0).outcome = "gone"
        return bool(self.receives and not self.kept)

    def _match(self) -> None:
        while self.kept and self.receives:
            self._hand_over(self.receives.pop(0))

    def _hand_over(self, receive: NaiveReceive) -> None:
        self.returned = max(self.returned - 1, 0) + receive.is_gone
        receive.outcome = "gone" if receive.is_gone else self.kept.pop(0)

    def _trim(self) -> None:
        size = DEFAULT_SIZE if self.size is None else self.size
        spare = len(self.receives) if size else max(len(self.receives), self.returned)
        while len(self.kept) > size + spare:
            self.dropped.append(self.kept.pop(spare))
            self.returned -= spare < self.returned

    def _let_in(self) -> None:
        while self.sends and self._can_take():
            self._accept(self.sends.pop(0))


class StreamRules(RuleBasedStateMachine):
    """Two streams, and what anybody may do at them."""

    def __init__(self) -> None:
        super().__init__()
        limits = StreamSettings(default_size=DEFAULT_SIZE, idle_s=FOREVER)
        self.stage = Stage(CoreSettings(streams=limits, ring=RingSettings(messages=10_000)))
        self.crowd = Crowd(self.stage)
        self.device: Client = self.stage.client("device")
        self.naive = {"s": NaiveStream(), "t": NaiveStream()}
        self.sends: list[tuple[Send, NaiveSend, str]] = []
        self.receives: list[tuple[Receive, NaiveReceive, str]] = []
        self.number = 0

    @property
    def now(self) -> float:
        return self.stage.clock.monotonic()

    def next_payload(self) -> bytes:
        self.number += 1
        return b"%06d" % self.number

    @rule(topic=st.sampled_from("st"), size=st.sampled_from([None, 0, 1, 2]), wait=WAITS)
    def send(self, topic: str, size: int | None, wait: float) -> None:
        naive = NaiveSend(self.next_payload(), self.now + wait)
        send = self.crowd.send(naive.payload, topic, size=size, wait=wait)
        self.naive[topic].send(naive, size, wait)
        self.sends.append((send, naive, topic))

    @rule(topic=st.sampled_from("st"), wait=WAITS, is_gone=st.booleans())
    def receive(self, topic: str, wait: float, is_gone: bool) -> None:
        naive = NaiveReceive(self.now + wait, is_gone)
        receive = self.crowd.receive(topic, wait=wait, is_gone=is_gone)
        self.naive[topic].receive(naive, wait)
        self.receives.append((receive, naive, topic))

    @rule(topic=st.sampled_from("st"), count=st.integers(1, 5))
    def publish(self, topic: str, count: int) -> None:
        payloads = [self.next_payload() for _ in range(count)]
        self.device.publish(topic, *payloads)
        self.stage.settle()
        self.naive[topic].publish(payloads)

    @rule(seconds=st.integers(1, 3))
    def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self.stage.advance(1.0)
            for naive in self.naive.values():
                naive.pass_time(self.now)

    @precondition(lambda self: any(naive.outcome == "waiting" for _, naive, _ in self.receives))
    @rule(data=st.data(), says_so=st.booleans())
    def go(self, data: st.DataObject, says_so: bool) -> None:
        waiting = [each for each in self.receives if each[1].outcome == "waiting"]
        receive, naive, topic = data.draw(st.sampled_from(waiting))
        if says_so:
            receive.cancel()
            self.naive[topic].leave(naive)
            naive.outcome = "left"
        else:
            receive.is_gone = naive.is_gone = True

    @precondition(lambda self: any(naive.outcome == "waiting" for _, naive, _ in self.sends))
    @rule(data=st.data())
    def take_back(self, data: st.DataObject) -> None:
        waiting = [each for each in self.sends if each[1].outcome == "waiting"]
        send, naive, topic = data.draw(st.sampled_from(waiting))
        send.cancel()
        self.naive[topic].leave(naive)
        naive.outcome = "left"

    @invariant()
    def everyone_got_what_the_rules_say(self) -> None:
        for send, naive, _ in self.sends:
            if naive.outcome in ("waiting", "left"):
                assert send.is_waiting
            elif naive.outcome == "accepted":
                assert send.receipt.topic
            else:
                assert send.code == naive.outcome
        for receive, expected, _ in self.receives:
            if expected.outcome in ("waiting", "left", "gone"):
                assert receive.is_waiting
            elif isinstance(expected.outcome, bytes):
                assert receive.payload == expected.outcome
            else:
                assert receive.code == expected.outcome

    @invariant()
    def every_published_message_is_received_or_kept_or_in_the_ledger(self) -> None:
        streams = self.crowd.streams
        assert streams.buffers.messages == sum(len(naive.kept) for naive in self.naive.values())
        assert streams.buffers.dropped == sum(len(naive.dropped) for naive in self.naive.values())
        assert streams.counters.receivers_waiting == sum(len(each.receives) for each in self.naive.values())
        assert streams.counters.senders_waiting == sum(len(each.sends) for each in self.naive.values())
        for name, naive in self.naive.items():
            topic = self.stage.broker.topics.get(name)
            published = (
                []
                if topic is None
                else [run.payload(index) for run in topic.runs for index in range(run.count)]
            )
            assert published == naive.published
            lost = {
                sequence
                for row in self.stage.broker.ledger.rows(topic=name, client_id=GROUP)
                for sequence in range(row.first, row.last + 1)
            }
            assert {published[sequence - 1] for sequence in lost} == set(naive.dropped)


StreamRules.TestCase.settings = examples(20, stateful_step_count=30)
TestStreamRules = StreamRules.TestCase
