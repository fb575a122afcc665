"""Two processes, their links and a network, all from one seed: cuts, delays, late duplicates, crashes.

A process has a disk, which survives crashes, and a memory, which does not. Commits take time, so that a crash
finds messages that were taken and are not stored. The checks at the end know only what users know: what they
sent, what was acknowledged, and what is in the logs.
"""

from collections import Counter, deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any, cast

from msgspec import Struct, field

from penstock.cluster.actions import Acknowledge, Close, Connect, Fail, Forwarded, Send, Take
from penstock.cluster.actions import Action as LinkAction
from penstock.cluster.forwards import ForwardNumbers, Route
from penstock.cluster.link import Link, LinkSettings, ProcessIdentity, Verdict
from penstock.wire.peer import FrameReader, Message, encode_frame
from tests.support.samples import make_run

SETTINGS = LinkSettings(window_bytes=3_000, window_messages=12)
"""Small, so that windows are full now and then."""
CHAOS_S = 12.0
REST_S = 30.0
TICK_S = 0.05


class Bugs(Struct, frozen=True, kw_only=True):
    """Faults that a test plants, to see that the simulation finds them."""

    forgets_numbers: bool = False
    """After a restart, numbers of forwards that were taken are not known."""
    settles_early: bool = False
    """Runs are settled when they are taken, before they are stored."""
    has_no_window: bool = False
    link: type[Link] = Link
    """Link with a fault of its own."""


class Broken(AssertionError):
    """An invariant does not hold."""


class Disk(Struct):
    """State of a process that survives a crash; each change is one commit."""

    log: dict[int, list[str]] = field(default_factory=dict)
    """Messages of each shard."""
    numbers: dict[Route, int] = field(default_factory=dict)
    """Last forward of each route that is in a log."""
    forwards: dict[Route, list[tuple[int, str]]] = field(default_factory=dict)
    """Forwards to other shards that are not confirmed."""
    next_number: dict[Route, int] = field(default_factory=dict)


class Wire:
    """Connection: bytes arrive in order and late, or not at all after a cut."""

    def __init__(self, delay: float) -> None:
        self.is_cut = False
        self.delay = delay
        self.arrives_at = {"a": 0.0, "b": 0.0}
        self.handles: dict[str, int] = {}
        self.readers = {"a": FrameReader(), "b": FrameReader()}
        self.ghost: Wire | None = None
        """Duplicate that only the other side sees, and that carries the first message alone."""


class Process:
    """Process of the cluster, with one link to the other one."""

    def __init__(self, world: "World", name: str, shards: tuple[int, ...]) -> None:
        self.world = world
        self.name = name
        self.shards = shards
        self.disk = Disk(log={shard: [] for shard in shards})
        self.incarnation = 0
        self.handles = count(1)
        self.wires: dict[int, Wire] = {}
        self.start()

    def start(self) -> None:
        """Begin with what is on the disk."""
        self.incarnation += 1
        self.is_up = True
        self.wires = {}
        numbers = {} if self.world.bugs.forgets_numbers else self.disk.numbers
        settings = SETTINGS
        if self.world.bugs.has_no_window:
            settings = LinkSettings(window_bytes=10**9, window_messages=10**9)
        self.link = self.world.bugs.link(
            ProcessIdentity("c1", self.name, self.incarnation),
            "b" if self.name == "a" else "a",
            is_dialler=self.name == "a",
            numbers=ForwardNumbers(numbers),
            random=self.world.dice.random,
            now=self.world.now,
            settings=settings,
        )
        self.handed_in: dict[Route, int] = {}
        """Last forward of each route that the link has got."""
        self.pending: deque[Take] = deque()
        """Runs that were taken and are not committed."""
        self.commit_at = 0.0

    def crash(self) -> None:
        self.is_up = False
        for wire in self.wires.values():
            self.world.cut(wire)

    # Users

    def publish(self, shard: int, text: str) -> None:
        """Some publishes of a user at QoS 1, in one chunk."""
        texts = [f"{text}-{part}" for part in range(self.world.dice.choice((1, 1, 3)))]
        runs = [make_run("t", each.encode(), qos=1) for each in texts]
        self.world.sent += texts
        verdict = self.link.publish(self.world.now, self.shards[0], shard, runs, texts)
        self.world.verdicts[verdict] += 1
        self.check_window(shard)

    def forward(self, shard: int, text: str) -> None:
        """A user's publish at QoS 2: stored, and answered, before it is handed to the link."""
        route = (self.shards[0], shard)
        number = self.disk.next_number.get(route, 1)
        self.disk.next_number[route] = number + 1
        self.disk.forwards.setdefault(route, []).append((number, text))
        self.world.forwarded.setdefault(route, []).append(text)

    def turn(self) -> None:
        """End of a turn: forwards are handed in while there is room, and everything leaves."""
        for (origin, shard), stored in self.disk.forwards.items():
            waiting = [each for each in stored if each[0] > self.handed_in.get((origin, shard), 0)]
            while waiting:
                part = waiting[: self.world.dice.choice((1, 1, 4))]
                runs = [make_run("t", text.encode(), qos=2) for _, text in part]
                verdict = self.link.forward(self.world.now, origin, shard, part[0][0], runs)
                self.world.verdicts[verdict] += 1
                self.check_window(shard)
                if verdict is Verdict.BLOCKED:
                    break
                self.handed_in[origin, shard] = part[-1][0]
                waiting = waiting[len(part) :]
        self.do(self.link.flush())

    def check_window(self, shard: int) -> None:
        size, messages = self.link.unsettled(shard)
        if messages > SETTINGS.window_messages or size > SETTINGS.window_bytes:
            raise Broken(f"{messages} messages and {size} bytes are not settled")

    # Actions of the link

    def do(self, actions: list[LinkAction]) -> None:
        for action in actions:
            self.world.actions[type(action).__name__] += 1
            if isinstance(action, Connect):
                self.world.dial(self, action.connection)
            elif isinstance(action, Send):
                self.world.transmit(self, action.connection, action.message)
            elif isinstance(action, Close):
                self.world.closed[action.reason] += 1
                self.world.close(self, action.connection)
            elif isinstance(action, Take):
                self.take(action)
            elif isinstance(action, Acknowledge):
                self.world.acknowledge(cast("list[str]", action.token))
            elif isinstance(action, Fail):
                self.world.failed += cast("list[str]", action.token)
            elif isinstance(action, Forwarded):
                self.world.check_forwarded(self, action)
                stored = self.disk.forwards.get((action.origin, action.shard), [])
                stored[:] = [each for each in stored if each[0] > action.number]

    def take(self, take: Take) -> None:
        """Commit later, in the order of taking; a crash in between forgets it."""
        if self.world.bugs.settles_early:
            self.do(self.link.on_taken(take))
        self.pending.append(take)
        incarnation = self.incarnation
        is_slow = self.world.is_chaotic and self.world.dice.random() < 0.05
        takes_s = self.world.dice.random() * (1.5 if is_slow else 0.1)
        self.commit_at = max(self.commit_at, self.world.now + takes_s)
        self.world.at(self.commit_at, lambda: self.commit(incarnation))

    def commit(self, incarnation: int) -> None:
        """Store the oldest runs that were taken; if that fails, none of those behind them is stored."""
        if not self.is_up or incarnation != self.incarnation or not self.pending:
            return
        if self.world.is_chaotic and self.world.dice.random() < 0.02:
            self.world.faults["rollback"] += 1
            failed, self.pending = list(self.pending), deque()
            for take in failed:
                self.do(self.link.on_rolled_back(self.world.now, take))
            return
        take = self.pending.popleft()
        texts = [run.payload().decode() for run in take.runs]
        self.disk.log[take.shard] += texts
        self.world.stored.update(texts)
        if take.is_forward:
            self.disk.numbers[take.origin, take.shard] = take.last
        if not self.world.bugs.settles_early:
            self.do(self.link.on_taken(take))


class World:
    """Both processes, the network between them, and the clock."""

    def __init__(self, seed: int, bugs: Bugs | None = None) -> None:
        self.dice = Random(seed)
        self.bugs = bugs or Bugs()
        self.now = 0.0
        self.order = 0
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.is_chaotic = True
        self.sent: list[str] = []
        self.stored: set[str] = set()
        self.acknowledged: list[str] = []
        self.failed: list[str] = []
        self.forwarded: dict[Route, list[str]] = {}
        self.verdicts: Counter[Verdict] = Counter()
        self.actions: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.closed: Counter[str] = Counter()
        """Reasons of closed connections."""
        self.texts = count(1)
        self.processes = {"a": Process(self, "a", (0, 1)), "b": Process(self, "b", (2, 3))}

    def at(self, when: float, event: Callable[[], None]) -> None:
        self.order += 1
        heappush(self.events, (when, self.order, event))

    # Network

    def other(self, process: Process) -> Process:
        return self.processes["b" if process.name == "a" else "a"]

    def delay(self) -> float:
        """Mostly quick; in bad times now and then slower than the silence that is allowed."""
        is_slow = self.is_chaotic and self.dice.random() < 0.03
        return self.dice.uniform(0.5, 3.0) if is_slow else self.dice.uniform(0.001, 0.03)

    def dial(self, process: Process, connection: int) -> None:
        """Make a connection; it may fail, or exist for the other side alone, and late."""
        wire, fate = Wire(self.delay()), self.dice.random() if self.is_chaotic else 1.0
        incarnation, other = process.incarnation, self.other(process)

        def accept(wire: Wire) -> None:
            if not other.is_up or wire.is_cut:
                self.lose(process, connection, incarnation)
                return
            handle = next(other.handles)
            other.wires[handle] = wire
            wire.handles[other.name] = handle
            other.do(other.link.on_connected(self.now, handle))

        def connected() -> None:
            if process.incarnation == incarnation and process.is_up and not wire.is_cut:
                process.wires[connection] = wire
                wire.handles[process.name] = connection
                process.do(process.link.on_connected(self.now, connection))

        if fate < 0.15:
            self.faults["refused"] += 1
            self.at(self.now + self.delay(), lambda: self.lose(process, connection, incarnation))
        elif fate < 0.25:
            self.faults["half-made"] += 1  # accepted there, never here: the dialling side gives up
            self.at(self.now + self.delay(), lambda: accept(wire))
        else:
            if fate < 0.4:
                self.faults["duplicate"] += 1
                ghost = wire.ghost = Wire(0.0)
                self.at(self.now + self.delay(), lambda: accept(ghost))
            self.at(self.now + wire.delay, lambda: accept(wire))
            self.at(self.now + wire.delay * 2, connected)

    def lose(self, process: Process, connection: int, incarnation: int) -> None:
        if process.is_up and process.incarnation == incarnation:
            process.wires.pop(connection, None)
            process.do(process.link.on_lost(self.now, connection))

    def transmit(self, process: Process, connection: int, message: Message) -> None:
        """Bytes on their way: in order, and in pieces."""
        wire = process.wires.get(connection)
        if wire is None or wire.is_cut:
            return
        other, data = self.other(process), encode_frame(message)
        arrives_at = max(wire.arrives_at[other.name], self.now + self.delay())
        wire.arrives_at[other.name] = arrives_at
        cut = self.dice.randrange(len(data) + 1)
        for piece in (data[:cut], data[cut:]):
            self.at(arrives_at, lambda piece=piece: self.arrive(other, wire, piece))  # type: ignore[misc]
        ghost, wire.ghost = wire.ghost, None
        if ghost is not None:
            self.at(self.now + self.dice.choice((0.01, 0.1, 1.5)), lambda: self.arrive(other, ghost, data))

    def arrive(self, process: Process, wire: Wire, data: bytes) -> None:
        handle = wire.handles.get(process.name)
        if wire.is_cut or not process.is_up or handle is None or process.wires.get(handle) is not wire:
            return
        for message in wire.readers[process.name].feed(data):
            process.do(process.link.on_message(self.now, handle, message))

    def close(self, process: Process, connection: int) -> None:
        wire = process.wires.pop(connection, None)
        if wire is not None:
            self.at(self.now + self.delay(), lambda: self.cut(wire))

    def cut(self, wire: Wire) -> None:
        """End a connection. Each side notices by itself, late, or not at all but for the silence."""
        wire.is_cut = True
        for name, handle in wire.handles.items():
            process = self.processes[name]
            if self.dice.random() < 0.3 or process.wires.get(handle) is not wire:
                continue  # half open
            incarnation = process.incarnation
            self.at(
                self.now + self.delay(),
                lambda process=process, handle=handle, incarnation=incarnation: self.lose(  # type: ignore[misc]
                    process, handle, incarnation
                ),
            )

    # Time

    def run(self) -> None:
        """Chaos, then rest; then everything has to hold."""
        self.at(0.0, self.tick)
        while self.events and self.events[0][0] < CHAOS_S:
            self.step()
        self.is_chaotic = False
        for process in self.processes.values():
            if not process.is_up:
                process.start()
        while self.events and self.events[0][0] < CHAOS_S + REST_S and not self.is_quiet():
            self.step()
        self.check()

    def step(self) -> None:
        self.now, _, event = heappop(self.events)
        event()

    def is_quiet(self) -> bool:
        """Nothing waits, and nothing can change any more."""
        return self.now > CHAOS_S + 5.0 and not any(
            any(process.disk.forwards.values()) or any(process.link.unsettled(shard)[1] for shard in range(4))
            for process in self.processes.values()
        )

    def tick(self) -> None:
        for process in self.processes.values():
            if process.is_up:
                process.do(process.link.on_time(self.now))
                if self.is_chaotic:
                    self.load(process)
                process.turn()
        if self.is_chaotic:
            self.fault()
        self.at(self.now + TICK_S, self.tick)

    def load(self, process: Process) -> None:
        """What users do in a moment; now and then a burst."""
        burst = 20 if self.dice.random() < 0.02 else self.dice.randrange(3)
        for _ in range(burst):
            shard = self.dice.choice(self.other(process).shards)
            text = f"{process.name}{next(self.texts)}" + "." * self.dice.choice((0, 10, 400))
            act: Any = self.dice.choice((process.publish, process.forward))
            act(shard, text)

    def fault(self) -> None:
        chance, process = self.dice.random(), self.dice.choice(list(self.processes.values()))
        if chance < 0.02:
            self.faults["cut"] += 1
            for wire in list(process.wires.values()):
                self.cut(wire)
        elif chance < 0.03 and process.is_up:
            self.faults["crash"] += 1
            process.crash()
            self.at(
                self.now + self.dice.uniform(0.05, 3.0), lambda: None if process.is_up else process.start()
            )

    # Invariants

    def acknowledge(self, texts: list[str]) -> None:
        """Publishes are acknowledged, so they are stored, at this moment."""
        self.acknowledged += texts
        missing = [text for text in texts if text not in self.stored]
        if missing:
            raise Broken(f"acknowledged and not stored: {missing}")

    def check_forwarded(self, process: Process, action: Forwarded) -> None:
        stored = self.other(process).disk.numbers.get((action.origin, action.shard), 0)
        if action.number > stored:
            raise Broken(
                f"forwards of {action.origin} are confirmed up to {action.number}, stored up to {stored}"
            )

    def check(self) -> None:
        logs = {shard: texts for each in self.processes.values() for shard, texts in each.disk.log.items()}
        for (origin, shard), texts in self.forwarded.items():
            ours = set(texts)
            found = [text for text in logs[shard] if text in ours]
            if found != texts:
                raise Broken(
                    f"forwards of {origin} to {shard}: {len(texts)} sent, {len(found)} taken, or not in order"
                )
        published = {text for texts in logs.values() for text in texts}
        lost = [text for text in self.acknowledged if text not in published]
        if lost:
            raise Broken(f"acknowledged and lost: {lost}")
        outcomes = Counter(self.acknowledged) + Counter(self.failed)
        twice = [text for text, number in outcomes.items() if number > 1]
        if twice:
            raise Broken(f"publishes with two outcomes: {twice}")
        if not set(outcomes) <= set(self.sent):
            raise Broken("outcomes of publishes that were not sent")
