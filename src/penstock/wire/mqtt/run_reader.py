"""Packet reader of a server: publishes and acknowledgements become runs, in one pass over a chunk.

Only what is needed is decoded. The accepted publishes are in `abilities.py`.
"""

from typing import cast

from penstock.model import Properties
from penstock.runs import NEVER, Run, Shape, Train
from penstock.wire.mqtt.abilities import (
    ALL_ABILITIES,
    DRESSED_SHAPES,
    NO_SHAPES,
    SHAPES,
    Abilities,
    quick_shapes,
)
from penstock.wire.mqtt.ack_runs import ACK_BYTES, take_ack_run
from penstock.wire.mqtt.decode import TopicNameCache, check_message
from penstock.wire.mqtt.packets import Auth, Connect, Subscribe, Unsubscribe, Version
from penstock.wire.mqtt.primitives import Body, take_varint
from penstock.wire.mqtt.properties import In, take_properties
from penstock.wire.mqtt.reader import CONNECT, Item, PacketReader
from penstock.wire.mqtt.reasons import (
    InvalidPayloadFormat,
    InvalidTopicAlias,
    MalformedPacket,
    PacketTooLarge,
    ProtocolViolation,
)

SOON = 1e-9
"""Lifetime of a message whose expiry interval is zero: it reaches current subscribers only."""
MERGED_BELOW_BYTES = 4096
"""Larger packets are not merged into runs: it would save little and make rings copy their ends."""
COUNTED_BYTES = 2048
"""Bytes after which the hot loop counts its runs."""
PACKET_WORK = 2
"""Work of a packet outside the hot loop, in units of the cheapest one."""
NEW_NAME_WORK = 64
"""Work of a publish to a topic that was not named recently."""
HANDSHAKE_WORK = 1_000_000
"""Work of CONNECT and AUTH: more than any step has, so that nothing behind them is read in the same one."""
FILTER_WORK = 16
"""Work of each filter that is subscribed to, or not any more."""


class RunReader(PacketReader):
    """Packet reader that makes runs of publishes, and resolves topic aliases.

    Before CONNECT nothing larger than `control_limit_bytes` is read, and the fields of a publish beside
    its payload never are. `is_plain` is True if the last chunk held only publishes at QoS 0, which need no
    response. With `makes_trains`, neighbouring ones of different topics or lengths become one train.
    """

    __slots__ = (
        "_abilities",
        "_aliases",
        "_aliases_limit",
        "_names",
        "_publish_limit_bytes",
        "_shapes",
        "_tail",
        "is_plain",
        "makes_trains",
    )

    def __init__(
        self,
        limit_bytes: int,
        names: TopicNameCache,
        aliases_limit: int = 0,
        control_limit_bytes: int | None = None,
        abilities: Abilities = ALL_ABILITIES,
    ) -> None:
        control_limit_bytes = limit_bytes if control_limit_bytes is None else control_limit_bytes
        super().__init__(min(limit_bytes, control_limit_bytes), control_limit_bytes=control_limit_bytes)
        self.is_plain = True
        self.makes_trains = False
        self._publish_limit_bytes = limit_bytes
        self._names = names
        self._abilities = abilities
        self._aliases: dict[int, str] | None = None
        self._aliases_limit = aliases_limit
        self._set_version()

    def _set_version(self) -> None:
        is_roomy = self._limit_bytes > 0x4000
        self._shapes = quick_shapes(self.version, self._abilities) if is_roomy else NO_SHAPES
        self._tail = int(self.version is Version.V5)  # bytes of an empty property section

    def feed(self, data: bytes, start: int = 0) -> list[Item]:
        """Everything that is complete now, in order; the common chunk never leaves the hot loop."""
        self.is_plain = True
        if self._parts is not None or self.error is not None:
            return super().feed(data, start)
        self.work = 0
        items: list[Item] = []
        self.position = position = self._take_known(data, start, len(data), items)
        if position < len(data):
            self._read_more(data, position, items)
        return items

    def _take_other(self, first: int, body: Body, items: list[Item]) -> None:
        self.is_plain = False
        super()._take_other(first, body, items)
        self.work += self._work_of(items[-1])
        if first == CONNECT:
            self._limit_bytes = self._publish_limit_bytes
            self._set_version()

    def _work_of(self, packet: Item) -> int:
        """Return the work of a packet, beyond one unit."""
        kind = type(packet)
        if kind is Subscribe:
            return FILTER_WORK * len(cast("Subscribe", packet).requests)
        if kind is Unsubscribe:
            return FILTER_WORK * len(cast("Unsubscribe", packet).filters)
        return HANDSHAKE_WORK if kind is Connect or kind is Auth else PACKET_WORK

    def _take_known(  # noqa: PLR0915 - one loop, because a call per message would cost as much again
        self, data: bytes, position: int, end: int, items: list[Item]
    ) -> int:
        """The hot loop: publishes to known topics, without properties, and acknowledgements, that are whole.

        Whatever else it meets is left to the general path, which also decides what is malformed.
        """
        shapes, tail = self._shapes, self._tail
        known: dict[bytes, str] = self._names  # compiled, its own type would cost a look-up of `get`
        last_topic: str | None = None
        last_stride = 0
        limit_bytes = self._limit_bytes - 5  # less the longest header
        work_limit, makes_trains = self.work_limit, self.makes_trains
        names: list[str] = []  # of a train that has begun, with the next two
        heads: list[int] = []
        ends: list[int] = []
        start = position  # of that train
        try:
            while position < end:
                if len(items) + len(names) + self.work >= work_limit:
                    return position
                counted = min(position + COUNTED_BYTES, end)
                while position < counted:
                    first = data[position]
                    shape = shapes[first]
                    size = data[position + 1]
                    body = position + 2
                    if shape is None:
                        whole = counted + ACK_BYTES - 1 if counted + ACK_BYTES <= end else end
                        acks = take_ack_run(data, position, whole)
                        if acks is None:
                            return position
                        if names:
                            self._close_train(data, start, names, heads, ends, items)
                            names, heads, ends = [], [], []
                        items.append(acks)
                        count = len(acks.packet_ids)
                        self.work += count - 1
                        self.is_plain = False
                        position += ACK_BYTES * count
                        continue
                    if size >= 0x80:
                        second = data[body]
                        if 0 < second < 0x80:
                            size += (second - 1) << 7
                            body += 1
                        elif second and 0 < data[body + 1] < 0x80:
                            size += (second - 0x81 << 7) + (data[body + 1] << 14)
                            body += 2
                        else:  # four bytes, or not the shortest form
                            return position
                        if size > limit_bytes:
                            return position
                    if data[body]:  # a topic of 256 bytes and more is not known
                        return position
                    stop = body + size
                    topic_start = body + 2
                    topic_end = topic_start + data[body + 1]
                    topic = known.get(data[topic_start:topic_end])
                    if not topic or stop > end:
                        return position
                    head = topic_end + tail
                    stride = stop - position
                    if first & 6:
                        head += 2
                        packet_id = data[topic_end] << 8 | data[topic_end + 1]
                        if not packet_id or head > stop or (tail and data[head - 1]):
                            return position
                        slab = data[position:stop]
                        if names:
                            self._close_train(data, start, names, heads, ends, items)
                            names, heads, ends = [], [], []
                        items.append(
                            Run(topic, slab, head - position, stride, 1, shape, None, NEVER, packet_id)
                        )
                        self.is_plain = False
                        position = stop
                        continue
                    if head > stop or (tail and data[head - 1]):
                        return position
                    count = 1
                    if topic is last_topic and stride == last_stride and stride < MERGED_BELOW_BYTES:
                        stop = _extend(data, position, head, stride, end)
                        count = (stop - position) // stride
                    last_topic, last_stride = topic, stride
                    if count == 1 and makes_trains and shape.is_plain:
                        if not names:
                            start = position
                        names.append(topic)
                        heads.append(head - position)
                        ends.append(stop)
                    else:
                        if names:
                            self._close_train(data, start, names, heads, ends, items)
                            names, heads, ends = [], [], []
                        items.append(Run(topic, data[position:stop], head - position, stride, count, shape))
                    position = stop
        except IndexError:  # a header cut by the end of the chunk
            pass
        finally:
            if names:
                self._close_train(data, start, names, heads, ends, items)
        return position

    def _close_train(
        self,
        data: bytes,
        start: int,
        names: list[str],
        heads: list[int],
        ends: list[int],
        items: list[Item],
    ) -> None:
        """Append the train that begins at `start`; a single message is a run."""
        stop = ends[-1]
        shape = cast("Shape", self._shapes[data[start]])
        if len(names) == 1:
            items.append(Run(names[0], data[start:stop], heads[0], stop - start, 1, shape))
            return
        if start:
            ends = [end - start for end in ends]
        items.append(Train(shape, data[start:stop], names, heads, ends))
        self.work += len(names) - 1

    def _take_publish(self, data: bytes, start: int, body: int, stop: int, items: list[Item]) -> int:
        shape = SHAPES[self.version][data[start]]
        if shape is None:
            raise MalformedPacket("publish flags")  # MQTT-3.3.1-2, -4
        self._abilities.check(shape)
        head = body + 2
        if head > stop:
            raise MalformedPacket("packet shorter than its fields")
        topic_start, head = head, head + (data[body] << 8 | data[body + 1])
        if head > stop:
            raise MalformedPacket("packet shorter than its fields")
        name = data[topic_start:head]
        topic = self._names.get(name)
        self.work += PACKET_WORK
        if topic is None:
            topic = self._names[name]
            self.work += NEW_NAME_WORK
        packet_id = 0
        if shape.qos:
            self.is_plain = False
            head += 2
            if head > stop or not (packet_id := data[head - 2] << 8 | data[head - 1]):
                raise MalformedPacket("packet identifier missing or zero")
        if self._tail:
            if head >= stop:
                raise MalformedPacket("packet shorter than its fields")
            if data[head] or not topic:
                items.append(self._dressed(data, start, head, stop, topic, packet_id))
                return stop
            head += 1
        elif not topic:
            raise ProtocolViolation("publish without a topic")
        stride = stop - start
        items.append(Run(topic, data[start:stop], head - start, stride, 1, shape, None, NEVER, packet_id))
        return stop

    def _dressed(self, data: bytes, start: int, head: int, stop: int, topic: str, packet_id: int) -> Run:
        """A publish with MQTT 5 properties."""
        size = take_varint(data, head, stop)
        if size is not None and size[0] > self._control_limit_bytes:
            raise PacketTooLarge(
                f"{size[0]} bytes of properties, at most {self._control_limit_bytes} are taken"
            )
        body = Body(data, head, stop)
        given = take_properties(body, In.PUBLISH)
        if given.subscription_ids:
            raise ProtocolViolation("subscription identifier from a client")  # MQTT-3.3.4-6
        check_message(given)
        if given.topic_alias is not None:
            topic = self._resolve(given.topic_alias, topic)
        if not topic:
            raise ProtocolViolation("publish without a topic")  # MQTT 5 section 3.3.2.1
        payload = body.rest()
        properties = Properties(
            given.content_type,
            given.correlation_data,
            given.response_topic,
            given.payload_format,
            None,
            given.user,
        )
        if not packet_id and self._abilities.misses_format(properties, payload):
            raise InvalidPayloadFormat("the payload is not UTF-8")  # else it is acknowledged
        ttl = NEVER if given.message_expiry is None else float(given.message_expiry) or SOON
        shape = DRESSED_SHAPES[data[start]]
        assert shape is not None
        # The whole packet, so that what topic and properties weigh is counted wherever bytes are counted.
        slab, stride = data[start:stop], stop - start
        return Run(topic, slab, stride - len(payload), stride, 1, shape, properties, ttl, packet_id)

    def _resolve(self, alias: int, topic: str) -> str:
        if not 0 < alias <= self._aliases_limit:
            raise InvalidTopicAlias(f"topic alias {alias}")  # MQTT-3.3.2-8, -9
        if self._aliases is None:
            self._aliases = {}
        if topic:
            self._aliases[alias] = topic
            return topic
        try:
            return self._aliases[alias]
        except KeyError:
            raise ProtocolViolation(f"topic alias {alias} is not defined") from None


def _extend(data: bytes, start: int, head: int, stride: int, end: int) -> int:
    """Return the end of the packets that have the same bytes, up to their payload, as the one at `start`."""
    prefix = data[start:head]
    stop = start + stride
    while data.startswith(prefix, stop):
        stop += stride
    return stop if stop <= end else stop - stride
