"""A stand-in for a NexusD daemon, in threads of this process, with the flaws of the original.

It sends no heartbeats and no warnings, forgets a subscription whose stream was lost (only one that was paused
can be resumed), and replays messages without their ids, content types, sources and correlation ids. A message
that is published while a replay begins comes twice. Topics are plain names.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any
from uuid import uuid4

import grpc
import pytest
from google.protobuf.message import Message

from penstock.client.grpc.nexusd.stub import SERVICE, encode
from penstock.wire.sidecar.messages import nexusd

Event = nexusd.MessageEvent
CUT = "cut"
ENDED = "ended"


class Live:
    """A subscription with an open stream."""

    def __init__(self, topics: list[str]) -> None:
        self.topics = topics
        self.queue: SimpleQueue[Event | str] = SimpleQueue()
        self.delivered: dict[str, int] = {}


class Daemon:
    """Starts at once; `stop` and `start` are a restart, which forgets everything."""

    def __init__(self, *, ring: int = 5) -> None:
        self.port = 0
        self.before_replay: Callable[[], None] = lambda: None
        """Called when a resumed subscription is live and its replay has not been read yet."""
        self.peers: list[nexusd.PeerInfo] = []
        self._ring = ring
        self.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Begin anew, on the same port."""
        self._lock = threading.RLock()
        self._sequences: dict[str, int] = {}
        self._rings: dict[str, deque[nexusd.Message]] = {}
        self._retained: dict[str, nexusd.Message] = {}
        self._live: dict[str, Live] = {}
        self._paused: dict[str, Live] = {}
        self._node_id = str(uuid4())
        self._workers = ThreadPoolExecutor(32)
        self._server = grpc.server(self._workers, options=[("grpc.so_reuseport", 0)])
        self._server.add_generic_rpc_handlers((self._handlers(),))
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        self._server.start()

    def stop(self) -> None:
        """Die, as far as clients can tell."""
        self._end_streams(CUT)
        self._server.stop(None).wait()
        self._workers.shutdown()

    def cut(self) -> None:
        """End all streams as a lost connection does; their subscriptions are gone."""
        self._end_streams(CUT)

    def forget_topic(self, topic: str) -> None:
        """Throw a topic's buffer away, and its count with it, as the original does when memory is short."""
        with self._lock:
            del self._sequences[topic], self._rings[topic]

    def publish(self, topic: str, payload: bytes) -> None:
        """Publish without a client."""
        self._publish(nexusd.PublishRequest(topic=topic, payload=payload), None)

    @property
    def live_topics(self) -> list[list[str]]:
        """What the open streams have subscribed to."""
        with self._lock:
            return [live.topics for live in self._live.values()]

    def _end_streams(self, how: str) -> None:
        with self._lock:
            for live in self._live.values():
                live.queue.put(how)
            self._live.clear()

    def _handlers(self) -> grpc.GenericRpcHandler:
        def unary(method: Any, request: type[Message]) -> Any:
            return grpc.unary_unary_rpc_method_handler(method, request.FromString, encode)

        def stream(method: Any, request: type[Message]) -> Any:
            return grpc.unary_stream_rpc_method_handler(method, request.FromString, encode)

        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Publish": unary(self._publish, nexusd.PublishRequest),
                "Subscribe": stream(self._subscribe, nexusd.SubscribeRequest),
                "ResumeSubscribe": stream(self._resume, nexusd.ResumeSubscribeRequest),
                "Unsubscribe": unary(self._unsubscribe, nexusd.UnsubscribeRequest),
                "GetTopics": unary(self._get_topics, nexusd.GetTopicsRequest),
                "GetPeers": unary(self._get_peers, nexusd.GetPeersRequest),
            },
        )

    def _publish(self, request: nexusd.PublishRequest, context: Any) -> nexusd.PublishResponse:
        if not request.topic and context is not None:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "topic must not be empty")
        with self._lock:
            message = self._stamped(request)
            if request.retain:
                self._retained[request.topic] = message
            reached = [live for live in self._live.values() if request.topic in live.topics]
            for live in reached:
                live.queue.put(Event(message=message))
        return nexusd.PublishResponse(
            success=True, message_id=message.message_id, subscriber_count=len(reached)
        )

    def _stamped(self, request: nexusd.PublishRequest) -> nexusd.Message:
        sequence = self._sequences[request.topic] = self._sequences.get(request.topic, 0) + 1
        message = nexusd.Message(
            message_id=str(uuid4()),
            topic=request.topic,
            payload=request.payload,
            content_type=request.content_type,
            timestamp_ms=time.time_ns() // 1_000_000,
            source_node_id=self._node_id,
            correlation_id=request.correlation_id,
            sequence_number=sequence,
        )
        self._rings.setdefault(request.topic, deque(maxlen=self._ring)).append(message)
        return message

    def _subscribe(self, request: nexusd.SubscribeRequest, context: Any) -> Iterator[Event]:
        live = Live(list(request.topics))
        with self._lock:
            subscription_id = f"sub-{len(self._live)}-{uuid4().hex[:8]}"
            self._live[subscription_id] = live
            retained = [self._retained[topic] for topic in live.topics if topic in self._retained]
        self._watch(live, context)
        yield Event(
            subscription_info=nexusd.SubscriptionInfo(subscription_id=subscription_id, topics=live.topics)
        )
        if request.receive_retained:
            yield from (Event(retained_message=message) for message in retained)
        yield from self._deliver(live, context)

    def _deliver(self, live: Live, context: Any) -> Iterator[Event]:
        while not isinstance(event := live.queue.get(), str):
            live.delivered[event.message.topic] = event.message.sequence_number
            yield event
        if event == CUT:
            context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")

    def _watch(self, live: Live, context: Any) -> None:
        """Forget it when its client has gone, which may have happened already."""

        def ended() -> None:
            live.queue.put(ENDED)
            with self._lock:
                self._live = {key: one for key, one in self._live.items() if one is not live}

        if not context.add_callback(ended):
            ended()

    def _resume(self, request: nexusd.ResumeSubscribeRequest, context: Any) -> Iterator[Event]:
        with self._lock:
            paused = self._paused.pop(request.subscription_id, None)
            if paused is None:
                context.abort(grpc.StatusCode.NOT_FOUND, "No paused subscription found")
            assert paused is not None  # abort raises
            live = self._live[request.subscription_id] = Live(paused.topics)
        self._watch(live, context)
        self.before_replay()
        lasts = {
            topic: request.last_sequence_per_topic.get(topic, 0) or paused.delivered.get(topic, 0)
            for topic in live.topics
        }
        yield self._resumed_info(request, lasts)
        if request.gap_recovery_mode == nexusd.GAP_RECOVERY_REPLAY_BUFFER:
            for topic, last in lasts.items():
                yield from self._replay(topic, last)
        if request.gap_recovery_mode == nexusd.GAP_RECOVERY_RETAINED_ONLY:
            newest = [self._rings[topic][-1] for topic in live.topics if self._rings.get(topic)]
            yield from (Event(retained_message=bare(message)) for message in newest)
        yield from self._deliver(live, context)

    def _resumed_info(self, request: nexusd.ResumeSubscribeRequest, lasts: dict[str, int]) -> Event:
        oldest = {topic: self._rings[topic][0].sequence_number for topic in lasts if self._rings.get(topic)}
        behind = {topic: first - lasts[topic] - 1 for topic, first in oldest.items() if lasts[topic] < first}
        info = nexusd.SubscriptionInfo(
            subscription_id=request.subscription_id,
            topics=list(lasts),
            gap_detected=bool(behind),  # also if that leaves out nothing
            missed_message_count=sum(behind.values()),
            replay_started=request.gap_recovery_mode == nexusd.GAP_RECOVERY_REPLAY_BUFFER,
        )
        return Event(subscription_info=info)

    def _replay(self, topic: str, last: int) -> Iterator[Event]:
        with self._lock:
            kept = list(self._rings.get(topic, ()))
        chosen = [one for one in kept if one.sequence_number > last] if last else kept[-1:]
        yield from (Event(replay_message=bare(message)) for message in chosen)
        complete = nexusd.ReplayComplete(
            topic=topic, replayed_count=len(chosen), latest_sequence=self._sequences.get(topic, 0)
        )
        yield Event(replay_complete=complete)

    def _unsubscribe(self, request: nexusd.UnsubscribeRequest, context: Any) -> nexusd.UnsubscribeResponse:
        with self._lock:
            live = self._live.pop(request.subscription_id, None)
            if live is None:
                return nexusd.UnsubscribeResponse(error_message="Subscription not found")
            live.queue.put(ENDED)
            if request.pause:
                self._paused[request.subscription_id] = live
        return nexusd.UnsubscribeResponse(success=True)

    def _get_topics(self, request: nexusd.GetTopicsRequest, context: Any) -> nexusd.GetTopicsResponse:
        names = [topic for topics in self.live_topics for topic in topics]
        return nexusd.GetTopicsResponse(topics={name: names.count(name) for name in names})

    def _get_peers(self, request: nexusd.GetPeersRequest, context: Any) -> nexusd.GetPeersResponse:
        return nexusd.GetPeersResponse(peers=self.peers)


def bare(message: nexusd.Message) -> nexusd.Message:
    """A message as the original's buffer keeps it."""
    return nexusd.Message(
        message_id=str(message.sequence_number),
        topic=message.topic,
        payload=message.payload,
        timestamp_ms=message.timestamp_ms,
        sequence_number=message.sequence_number,
    )


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    """A running NexusD daemon."""
    running = Daemon()
    yield running
    running.stop()
