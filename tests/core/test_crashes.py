"""Whatever happens to the server, and whenever: what it acknowledged arrives, in order, and at QoS 2 once.

Devices publish, listen, come and go; the disk is slow, stuck or full; and between any two turns of the loop
the server may be killed. Everything follows from a seed, which a failure names.
"""

import random
from collections import Counter
from collections.abc import Callable

import pytest

from penstock.common.topics import matches, split_share
from penstock.core.delivery import drain, drops, offline_fetch
from penstock.core.durability import recorder
from penstock.core.runtime import background
from penstock.core.sessions import lifecycle
from penstock.core.settings import CoreSettings, LogSettings, OutboxSettings
from penstock.core.subscriptions import subscribe
from penstock.model import Reason
from tests.core.devices import Device, Message
from tests.support.broker import Stage
from tests.support.clock import ManualClock
from tests.support.disk import Disk

SEEDS = 200
STEPS = 120
TOPICS = ("a/1", "a/2", "b/1", "c/1")
FILTERS = ("a/#", "a/1", "#", "+/1")
GROUPS = {"$share/one/b/#": 1, "$share/two/c/#": 2}
"""Shared filters, each wanted at one QoS."""


class World:
    """A server that is killed now and then, and the devices around it."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.clock = ManualClock()
        self.disk = Disk()
        self.settings = CoreSettings(
            outbox=OutboxSettings(messages=chance.choice((2, 5, 1_000))),
            log=LogSettings(capture=chance.choice(((), ("a/#",), ("#",)))),
        )
        self.stage = self._start()
        self.publishers = [Device("v5"), Device("v3", is_v5=False), Device("old", is_v5=False)]
        self.readers = [Device(name, window=chance.choice((1, 3, 100))) for name in ("r1", "r2", "r3")]
        self.fickle = Device("fickle", window=chance.choice((1, 3, 100)))  # changes its mind
        self.phoenix = Device("phoenix")  # begins anew
        self.sharers = [Device(f"s{number}", window=chance.choice((1, 3, 100))) for number in range(4)]
        self.guest = Device("guest", expiry=0.0)  # shares while it is there
        self.listeners = [*self.readers, self.fickle, self.phoenix]
        self.devices = [*self.publishers, *self.listeners, *self.sharers, self.guest]
        self.must_reach: dict[str, dict[bytes, tuple[Message, int]]] = {}
        """By device or shared filter: messages that have to arrive if they are accepted, and their QoS."""
        self._begin()

    def _start(self) -> Stage:
        return Stage(self.settings, disk=self.disk, clock=self.clock)

    def _begin(self) -> None:
        self.run_quietly()
        self.readers[0].subscribe("a/#", 1)
        self.readers[1].subscribe("#", 2)
        self.readers[2].subscribe("a/1", 2)
        self.readers[2].subscribe("a/+", 1)
        for number, device in enumerate(self.sharers):
            filter, qos = list(GROUPS.items())[number % 2]
            device.subscribe(filter, qos)
        self.run_quietly()

    # What happens

    def step(self) -> None:
        """Let packets travel, the loop turn, those come back who are gone, and one thing happen."""
        for device in self.chance.sample(self.devices, 4):
            device.deliver(self.chance.randint(0, 4))
            device.read(self.chance.randint(0, 4))
        if self.chance.random() < 0.6:
            self.stage.scheduler.turn()
        device = self.chance.choice(self.devices)
        if not device.is_connected and self.chance.random() < 0.8:
            device.connect(self.stage)
        (action,) = self.chance.choices(list(ACTIONS), list(ACTIONS.values()))
        action(self)

    def publish(self) -> None:
        publisher = self.chance.choice(self.publishers)
        for _ in range(self.chance.choice((1, 1, 4))):
            message = publisher.publish(self.chance.choice(TOPICS), self.chance.choice((1, 2)))
            if message is not None:
                self._expect(message)

    def _expect(self, message: Message) -> None:
        """Note whom a message has to reach, if it is accepted."""
        for device in self.listeners:
            levels = [qos for filter, qos in device.wanted.items() if matches(filter, message.topic)]
            if levels:
                self._note(device.name, message, max(levels))
        for filter, qos in GROUPS.items():
            if matches(split_share(filter)[1], message.topic):
                self._note(filter, message, qos)

    def _note(self, name: str, message: Message, qos: int) -> None:
        self.must_reach.setdefault(name, {})[message.payload] = message, min(qos, message.qos)

    def wait(self) -> None:
        self.stage.scheduler.advance(self.chance.choice((0.05, 0.2)))

    def reap(self) -> None:
        self.stage.broker.reap()

    def take_over(self) -> None:
        self.chance.choice(self.devices).connect(self.stage)

    def go(self) -> None:
        device = self.chance.choice(self.devices)
        self.chance.choice((device.lose, device.leave))()

    def change_mind(self) -> None:
        filter = self.chance.choice(FILTERS)
        if filter not in self.fickle.wanted or self.chance.random() < 0.2:
            self.fickle.subscribe(filter, 2)
        else:
            self.fickle.unsubscribe(filter)
            self.must_reach.pop("fickle", None)  # what waits may come, or not

    def begin_anew(self) -> None:
        if self.phoenix.is_greeted and not self.phoenix.wanted:
            self.phoenix.subscribe("a/#", 2)
        else:
            self.phoenix.connect(self.stage, clean=True)
            self.must_reach.pop("phoenix", None)

    def share(self) -> None:
        device = self.chance.choice((self.guest, *self.sharers))
        filter, qos = self.chance.choice(list(GROUPS.items()))
        if device is self.guest and qos == 2:
            return  # what it has not completed when it goes is lost, as MQTT-4.8.2-5 wants it
        if filter not in device.wanted:
            device.subscribe(filter, qos)
        elif device is self.guest:
            device.unsubscribe(filter)

    def get_stuck(self) -> None:
        self.disk.is_stuck = not self.disk.is_stuck
        if not self.disk.is_stuck:
            self.disk.sync()

    def sync(self) -> None:
        self.disk.sync()

    def fill_up(self) -> None:
        self.disk.is_full = not self.disk.is_full and self.chance.random() < 0.5

    def stop(self) -> None:
        """Stop the server in good order, as far as the disk lets it."""
        self.stage.broker.stop()
        self.stage.settle()
        self.stage.broker.close()
        self.stage.settle()
        self.disk.sync()
        self.crash()

    def crash(self) -> None:
        """Kill the server; what it had sent may have arrived, or not."""
        self._check_ledger()
        self.disk.crash()
        for device in self.devices:
            device.read_last_words(self.chance.choice((0, 0, 2, 100)))
            device.lose()
        self.disk.is_stuck = False
        self.disk.is_full = self.disk.is_full and self.chance.random() < 0.5
        self.stage = self._start()

    # The end

    def run_quietly(self) -> None:
        """Everyone is there, the disk is well, and nothing happens, until nobody has anything to say."""
        self.disk.is_full = self.disk.is_stuck = False
        for _ in range(1_000):
            for device in self.devices:
                if not device.is_connected:
                    device.connect(self.stage)
                device.read(100)
                device.deliver(100)
            self.disk.sync()
            self.stage.advance(0.2)
            if all(device.is_quiet for device in self.devices) and self.stage.broker.is_drained:
                return
        raise AssertionError("it never comes to an end")

    def check(self) -> None:
        """Nothing is lost, nothing comes twice at QoS 2, and everything comes in order."""
        self._check_ledger()
        for name, wanted in self.must_reach.items():
            members = [*self.sharers, self.guest] if name in GROUPS else self.devices
            got = Counter(
                packet.payload
                for device in members
                if device.name == name or name in GROUPS
                for packet in device.received
            )
            for message, level in wanted.values():
                count = got[message.payload]
                assert count or not message.is_accepted, f"{name} never got {message}"
                assert count <= 1 or level < 2, f"{name} got {message} {count} times"
        for device in self.listeners:
            self._check_order(device)

    def _check_order(self, device: Device) -> None:
        """First arrivals come in the order in which they were sent, for each sender and topic."""
        wanted = self.must_reach.get(device.name, {})
        last: dict[tuple[str, str], int] = {}
        for payload in dict.fromkeys(packet.payload for packet in device.received):
            message, _ = wanted.get(payload, (None, 0))
            if message is None or message.was_refused:
                continue  # it may come when it is sent again, and others meanwhile
            where = message.sender, message.topic
            assert last.get(where, 0) < message.serial, f"{device.name} got {payload!r} too late"
            last[where] = message.serial

    def _check_ledger(self) -> None:
        """Nobody is told that something is lost, but for what was refused or not wanted any more."""
        rows = self.stage.broker.ledger.rows()
        unexpected = [
            row
            for row in rows
            if row.reason is not Reason.NEVER_STORED and row.client_id not in ("fickle", "phoenix", "guest")
        ]
        assert not unexpected, f"recorded as lost: {unexpected}"


ACTIONS: dict[Callable[[World], None], int] = {
    World.publish: 40,
    World.wait: 10,
    World.reap: 2,
    World.take_over: 3,
    World.go: 6,
    World.change_mind: 6,
    World.begin_anew: 4,
    World.share: 6,
    World.get_stuck: 6,
    World.sync: 6,
    World.fill_up: 3,
    World.stop: 1,
    World.crash: 2,
}
"""What may happen, and how often it does."""


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows are written and messages fetched as often as on a server that has run for days."""
    monkeypatch.setattr(recorder, "MOVES_KEPT", 5)
    monkeypatch.setattr(recorder, "ENTRIES_A_TURN", 5)
    monkeypatch.setattr(offline_fetch, "MESSAGES_AT_ONCE", 3)
    monkeypatch.setattr(subscribe, "FILTERS_A_STEP", 1)
    monkeypatch.setattr(drops, "ENTRIES_A_STEP", 2)
    monkeypatch.setattr(lifecycle, "FEW_MESSAGES", 1)


def live(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One world from its beginning to its end, with a last crash when everything has come to rest.

    In every other world a turn has time for one step of background work, and for one session that drains.
    """
    is_busy = seed % 2 == 1
    monkeypatch.setattr(background, "WORK_S", 0.0 if is_busy else 1.0)
    monkeypatch.setattr(drain, "DRAIN_S", 0.0 if is_busy else 1.0)
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    world.run_quietly()
    world.check()
    received = {device.name: len(device.received) for device in world.devices}
    world.crash()
    world.run_quietly()
    assert received == {device.name: len(device.received) for device in world.devices}


@pytest.mark.parametrize("part", range(10))
def test_what_was_acknowledged_outlives_every_crash_in_order_and_at_qos_2_once(
    part: int, scale: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = SEEDS * scale // 10
    for seed in range(part * seeds, (part + 1) * seeds):
        try:
            live(seed, monkeypatch)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
