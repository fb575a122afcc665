"""Load test: opens the connections, publishes, counts until everything has arrived, and sums up."""

import asyncio
from array import array
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import randrange
from statistics import fmean
from time import monotonic_ns

from msgspec import Struct

from penstock.cli.commands.bench.connections import Connection, Load, Publisher, Pulse, Subscriber
from penstock.client.errors import ConnectionLost
from penstock.client.mqtt.stream import PacketStream

POLL_S = 0.02
PING_EVERY_S = 20.0
MAX_SAMPLES = 1_000_000
"""Latencies recorded by one subscriber at most, about."""
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}

Connect = Callable[[str], Awaitable[tuple[PacketStream, int]]]
"""From the end of a client id to an accepted connection, and the server's receive maximum."""


class Plan(Struct, frozen=True, kw_only=True):
    """Options of a load test."""

    topic: str
    messages: int
    size: int
    qos: int
    topics: int
    publishers: int = 0
    subscribers: int = 0
    rate: float = 0.0
    window: int = 0
    timeout_s: float

    @property
    def topic_names(self) -> tuple[str, ...]:
        """Topics that every publisher uses in turn."""
        if self.topics == 1:
            return (self.topic,)
        return tuple(f"{self.topic}/{number}" for number in range(self.topics))

    @property
    def filter(self) -> str:
        """Filter of all these topics."""
        return self.topic if self.topics == 1 else f"{self.topic}/+"


class Flow(Struct, frozen=True, kw_only=True):
    """Messages in one direction."""

    messages: int
    seconds: float
    messages_per_s: float | None
    bytes_per_s: float | None


class Latency(Struct, frozen=True, kw_only=True):
    """Distribution of latencies in milliseconds."""

    mean_ms: float
    p50_ms: float
    p90_ms: float
    p95_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float


class Result(Struct, frozen=True, kw_only=True):
    """Result of a load test; what was not measured is None."""

    topic: str
    qos: int
    size: int
    topics: int
    publishers: int
    subscribers: int
    is_interrupted: bool
    published: Flow | None
    """Counted when acknowledged; at QoS 0 when sent."""
    delivered: Flow | None
    """To all subscribers together."""
    latency: Latency | None
    """To delivery, or to acknowledgement without subscribers."""
    lost: int | None
    """Not delivered, or not acknowledged; None if interrupted."""
    duplicates: int | None
    out_of_order: int | None


class LoadTest:
    """One run against a server."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._pulse = Pulse()
        self._run_id = randrange(1 << 32)  # noqa: S311 - tells runs apart
        self._publishers: list[Publisher] = []
        self._subscribers: list[Subscriber] = []
        self._began_ns = 0
        self._is_interrupted = False

    @property
    def progress(self) -> int:
        """Messages delivered so far, or published without subscribers."""
        if self._plan.subscribers:
            return sum(subscriber.count for subscriber in self._subscribers)
        return sum(publisher.sent for publisher in self._publishers)

    @property
    def total(self) -> int:
        """Value of `progress` at the end of a run without losses."""
        return self._plan.messages * (self._plan.subscribers or 1)

    async def run(self, connect: Connect) -> Result:
        """Run to the end, or until cancelled: then the result covers what was done.

        Raises:
            PenstockError: a connection or a request was refused, or a connection was lost.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                await self._run(connect, tasks)
        except asyncio.CancelledError:
            self._is_interrupted = True
        except BaseExceptionGroup as group:
            raise _first_of(group) from None
        finally:
            for connection in self._connections:
                await connection.abort()
        return self._result()

    @property
    def _connections(self) -> list[Connection]:
        return [*self._subscribers, *self._publishers]

    async def _run(self, connect: Connect, tasks: asyncio.TaskGroup) -> None:
        background = [tasks.create_task(self._keep_alive())]
        for number in range(self._plan.subscribers):
            subscriber = await self._open_subscriber(connect, number)
            background.append(tasks.create_task(subscriber.read()))
            await subscriber.subscribe(self._plan.filter, self._plan.qos)
        for number in range(self._plan.publishers):
            publisher = await self._open_publisher(connect, number)
            background.append(tasks.create_task(publisher.read()))
        self._began_ns = monotonic_ns()
        background += [tasks.create_task(publisher.publish()) for publisher in self._publishers]
        await self._wait_for_end()
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        for connection in self._connections:
            await connection.close()

    async def _open_subscriber(self, connect: Connect, number: int) -> Subscriber:
        plan = self._plan
        stream, _ = await connect(f"sub-{number + 1}")
        subscriber = Subscriber(
            stream,
            self._pulse,
            run=self._run_id if plan.publishers else None,
            topics=plan.topics,
            sample_every=-(-plan.messages // MAX_SAMPLES),
        )
        self._subscribers.append(subscriber)
        return subscriber

    async def _open_publisher(self, connect: Connect, number: int) -> Publisher:
        plan = self._plan
        stream, receive_maximum = await connect(f"pub-{number + 1}")
        window = -(-plan.window // plan.publishers) if plan.window else 0
        if plan.qos:
            window = min(window or receive_maximum, receive_maximum)
        share, rest = divmod(plan.messages, plan.publishers)
        load = Load(
            run=self._run_id,
            publisher=number,
            topics=plan.topic_names,
            messages=share + (number < rest),
            size=plan.size,
            qos=plan.qos,
            rate=plan.rate / plan.publishers,
            window=window,
        )
        delivered = (lambda: self._delivered_by_all(number)) if self._subscribers else None
        publisher = Publisher(stream, self._pulse, load, delivered)
        self._publishers.append(publisher)
        return publisher

    def _delivered_by_all(self, publisher: int) -> int:
        return min(subscriber.count_of(self._run_id, publisher) for subscriber in self._subscribers)

    async def _wait_for_end(self) -> None:
        """Wait until everything has arrived, or nothing more did for the timeout.

        A test without publishers waits for its first message as long as it takes.
        """
        plan, clock = self._plan, asyncio.get_running_loop().time
        timeout_s = max(plan.timeout_s, 2 * plan.publishers / plan.rate if plan.rate else 0.0)
        before, changed_at = -1, clock()
        while not self._is_complete():
            await asyncio.sleep(POLL_S)
            now = self._activity()
            if now != before or not (now or plan.publishers):
                before, changed_at = now, clock()
            elif clock() - changed_at > timeout_s:
                return

    def _activity(self) -> int:
        sent = sum(publisher.sent + publisher.acknowledged for publisher in self._publishers)
        return sent + sum(subscriber.count + subscriber.duplicates for subscriber in self._subscribers)

    def _is_complete(self) -> bool:
        are_sent = all(publisher.ended_ns for publisher in self._publishers)
        return are_sent and all(subscriber.count >= self._plan.messages for subscriber in self._subscribers)

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(PING_EVERY_S)
            for connection in self._connections:
                connection.ping()

    def _result(self) -> Result:
        plan = self._plan
        measured = self._subscribers or self._publishers
        return Result(
            topic=plan.topic,
            qos=plan.qos,
            size=plan.size,
            topics=plan.topics,
            publishers=plan.publishers,
            subscribers=plan.subscribers,
            is_interrupted=self._is_interrupted,
            published=self._published() if plan.publishers else None,
            delivered=self._delivered() if plan.subscribers else None,
            latency=_latency([each.latencies_ns for each in measured]),
            lost=None if self._is_interrupted else self._lost(),
            duplicates=sum(each.duplicates for each in self._subscribers) if plan.subscribers else None,
            out_of_order=sum(each.out_of_order for each in self._subscribers) if plan.subscribers else None,
        )

    def _published(self) -> Flow:
        counts = [each.acknowledged if self._plan.qos else each.sent for each in self._publishers]
        ended_ns = max((each.ended_ns for each in self._publishers), default=0)
        if not all(each.ended_ns for each in self._publishers):
            ended_ns = monotonic_ns()
        seconds = (ended_ns - self._began_ns) / 1e9 if self._began_ns else 0.0
        return _flow(sum(counts), sum(counts) * self._plan.size, seconds)

    def _delivered(self) -> Flow:
        began = [each.began_ns for each in self._subscribers if each.began_ns]
        began_ns = self._began_ns if self._plan.publishers else min(began, default=0)
        ended_ns = max((each.ended_ns for each in self._subscribers), default=0)
        size = sum(each.bytes for each in self._subscribers)
        return _flow(self.progress, size, max(ended_ns - began_ns, 0) / 1e9)

    def _lost(self) -> int:
        plan = self._plan
        if plan.subscribers:
            return sum(max(plan.messages - each.count, 0) for each in self._subscribers)
        handled = sum(each.acknowledged if plan.qos else each.sent for each in self._publishers)
        return plan.messages - handled


def _flow(messages: int, size: int, seconds: float) -> Flow:
    return Flow(
        messages=messages,
        seconds=seconds,
        messages_per_s=messages / seconds if seconds else None,
        bytes_per_s=size / seconds if seconds else None,
    )


def _latency(samples: "list[array[int]]") -> Latency | None:
    ordered = sorted(value for each in samples for value in each)
    if not ordered:
        return None
    values = {f"{name}_ms": _at(ordered, share) for name, share in PERCENTILES.items()}
    return Latency(mean_ms=fmean(ordered) / 1e6, max_ms=ordered[-1] / 1e6, **values)


def _at(ordered: list[int], share: float) -> float:
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] / 1e6


def _first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that says most: a refusal is followed by lost connections."""
    errors: list[BaseException] = []
    for error in group.exceptions:
        errors.append(_first_of(error) if isinstance(error, BaseExceptionGroup) else error)
    with suppress(StopIteration):
        return next(error for error in errors if not isinstance(error, ConnectionLost))
    return errors[0]
