"""Finds packets in a stream of bytes, however it is cut.

`PacketReader` makes a value of every packet; the client and the tests read with it. `RunReader` is
what a server reads with: publishes become runs, in one pass over a chunk, without decoding what
nobody asked for. After bad bytes `error` is set and nothing more is read; what came before them is
still returned, because it was valid.
"""

from functools import lru_cache

from msgspec import Struct

from penstock.model import NEVER, Door, Properties, Run, Shape
from penstock.wire.mqtt.decode import check_message, check_publish_flags, check_topic_name, decode_packet
from penstock.wire.mqtt.packets import Connect, Packet, PacketType, PubAck, Version
from penstock.wire.mqtt.primitives import Body, decode_text, take_varint
from penstock.wire.mqtt.properties import In, take_properties
from penstock.wire.mqtt.reasons import (
    InvalidPayloadFormat,
    InvalidTopicAlias,
    MalformedPacket,
    MqttWireError,
    PacketTooLarge,
    ProtocolViolation,
    QosNotSupported,
    RetainNotSupported,
)

LAYOUTS = {Version.V311: "mqtt-3", Version.V5: "mqtt-5"}
"""Frames that may be passed on as they are to a subscriber of the same version."""
DRESSED = "mqtt-5-properties"
"""Frames with properties: some of them are the receiver's own, so they are always made anew."""
CONNECT = PacketType.CONNECT << 4
SOON = 1e-9
"""The lifetime of a message whose expiry interval is zero: it reaches who is there now, and nobody later."""
LARGE_BYTES = 8192
MERGED_BELOW_BYTES = 4096
"""Larger packets are not merged into runs: it would save little and make rings copy their ends."""
_NAMES_LIMIT = 65_536
_MARKS = 131_072
_NAME_LIMIT_BYTES = 256  # longer names are checked each time: remembered, they could fill the memory


def _shapes(layout: str) -> tuple[Shape | None, ...]:
    """A shape for each first byte; None if it is no PUBLISH, or its flags are forbidden."""
    shapes: list[Shape | None] = []
    for flags in range(16):
        try:
            check_publish_flags(flags)
        except MalformedPacket:
            shapes.append(None)
        else:
            known = shapes[flags & 7] if flags & 8 else None  # DUP says nothing about the message
            qos, retain = flags >> 1 & 3, bool(flags & 1)
            is_plain = layout != DRESSED and not retain
            shapes.append(known or Shape(layout, Door.MQTT, qos, retain, is_plain))
    return (None,) * 0x30 + tuple(shapes) + (None,) * 0xC0


def _extend(data: bytes, start: int, head: int, stride: int, end: int) -> int:
    """Where the packets end that begin with the same bytes, up to their payload, as the one at `start`."""
    prefix = data[start:head]
    stop = start + stride
    while data.startswith(prefix, stop):
        stop += stride
    return stop if stop <= end else stop - stride


SHAPES = {version: _shapes(layout) for version, layout in LAYOUTS.items()}
NO_SHAPES: tuple[Shape | None, ...] = (None,) * 256
DRESSED_SHAPES = _shapes(DRESSED)


class Abilities(Struct, frozen=True):
    """Which publishes a server takes; MQTT 5 clients are told in CONNACK."""

    maximum_qos: int = 2
    retain: bool = True
    checks_payload_format: bool = True

    def check(self, shape: Shape) -> None:
        """Refuse what the client was told not to send."""
        if shape.qos > self.maximum_qos:
            raise QosNotSupported(f"QoS {shape.qos}, at most {self.maximum_qos} is taken")  # MQTT-3.2.2-11
        if shape.retain and not self.retain:
            raise RetainNotSupported("retained messages are not kept here")  # MQTT-3.2.2-14

    def misses_format(self, properties: Properties | None, payload: bytes) -> bool:
        """Whether a payload is said to be text and is not."""
        if properties is None or properties.payload_format != 1 or not self.checks_payload_format:
            return False
        try:
            str(payload, "utf-8")
        except UnicodeDecodeError:
            return True
        return False


ALL_ABILITIES = Abilities()


@lru_cache
def _quick_shapes(version: Version, abilities: Abilities) -> tuple[Shape | None, ...]:
    """The shapes that the hot loop may take without asking."""
    return tuple(
        shape
        if shape is not None and shape.qos <= abilities.maximum_qos and (abilities.retain or not shape.retain)
        else None
        for shape in SHAPES[version]
    )


class Names(dict[bytes, str]):
    """Topic names already checked and decoded, shared by all connections of a door.

    A dict that fills itself: a known name costs one look-up, the checks are paid twice. A name is
    remembered when it comes a second time, so that a flood of new ones does not push out those in use.
    """

    __slots__ = ("_marked", "_marks")

    def __init__(self) -> None:
        self._marks = bytearray(_MARKS)  # by hash: a name like this was seen
        self._marked = 0

    def __missing__(self, raw: bytes) -> str:
        name = decode_text(raw)
        check_topic_name(name)
        if len(raw) <= _NAME_LIMIT_BYTES and self._is_known(hash(raw) % _MARKS):
            if len(self) >= _NAMES_LIMIT:
                self.clear()
            self[raw] = name
        return name

    def _is_known(self, mark: int) -> bool:
        if self._marks[mark]:
            return True
        self._marks[mark] = 1
        self._marked += 1
        if self._marked > _MARKS // 2:  # so many that strangers are taken for known
            self._marks = bytearray(_MARKS)
            self._marked = 0
        return False


class PacketReader:
    """Splits what is fed into packets and decodes each.

    `control_limit_bytes` is for every packet but PUBLISH: whoever decodes all of a large one does nothing
    else meanwhile. `is_greeted` tells that a CONNECT was begun, whether or not it turned out to be good.
    """

    __slots__ = (
        "_control_limit_bytes",
        "_have",
        "_limit_bytes",
        "_need",
        "_parts",
        "error",
        "is_amid_large",
        "is_greeted",
        "version",
    )

    def __init__(
        self, limit_bytes: int, version: Version = Version.V311, control_limit_bytes: int | None = None
    ) -> None:
        self.version = version
        self.error: MqttWireError | None = None
        self.is_greeted = False
        self._limit_bytes = limit_bytes
        self._control_limit_bytes = limit_bytes if control_limit_bytes is None else control_limit_bytes
        self._parts: list[bytes] | None = None  # the beginning of a packet that is not whole yet
        self._have = 0
        self._need = 0
        self.is_amid_large = False  # a large packet has begun and is not whole yet

    def feed(self, data: bytes) -> list[Packet | Run]:
        """Everything that is complete now, in order."""
        items: list[Packet | Run] = []
        position = self._complete(data, items) if self._parts is not None else 0
        if position < len(data) and self.error is None:
            self._go_on(data, position, items)
        return items

    def _complete(self, data: bytes, items: list[Packet | Run]) -> int:
        """Finish the packet that earlier chunks began, and tell where the next one starts.

        It is joined once, whatever its size, and what follows it is not copied at all.
        """
        position = 0
        while self._parts is not None and self.error is None:
            stop = position + self._need - self._have
            piece = data[position:stop]
            self._parts.append(piece)
            self._have += len(piece)
            if self._have < self._need:
                return len(data)
            whole, self._parts = b"".join(self._parts), None
            self.is_amid_large = False
            position = stop
            self._go_on(whole, 0, items)  # takes it, or keeps it again now that more of its length is known
        return position

    def stop(self) -> None:
        """Read nothing more, whatever comes."""
        self._parts = None
        self.error = self.error or MqttWireError("no longer read")

    def _go_on(self, data: bytes, position: int, items: list[Packet | Run]) -> None:
        try:
            self._split(data, position, items)
        except MqttWireError as error:
            self.error = error.with_traceback(None)  # which would hold this reader, and that the error

    def _split(self, data: bytes, position: int, items: list[Packet | Run]) -> None:
        end = len(data)
        while (position := self._take_known(data, position, end, items)) < end:
            body = position + 2
            if body > end:
                return self._keep(data, position, 2)
            size = data[position + 1]
            if size >= 0x80:
                found = take_varint(data, position + 1)
                if found is None:
                    return self._keep(data, position, end - position + 1)
                size, body = found
            stop = body + size
            first = data[position]
            is_publish = first & 0xF0 == 0x30
            if first == CONNECT:
                self._learn_version(data, body, min(stop, end))
            limit_bytes = self._limit_bytes if is_publish else self._control_limit_bytes
            if stop - position > limit_bytes:
                # Refused from the length field: the body is never buffered.
                raise PacketTooLarge(f"{stop - position} bytes, at most {limit_bytes} are taken")
            if stop > end:
                return self._keep(data, position, stop - position)
            if is_publish:
                position = self._take_publish(data, position, body, stop, items)
                continue
            self._take_other(first, Body(data, body, stop), items)
            position = stop
        return None

    def _learn_version(self, data: bytes, start: int, end: int) -> None:
        """Look at a CONNECT's version before anything else: if it is refused, the answer has to suit it."""
        self.is_greeted = True
        name_end = start + 2 + int.from_bytes(data[start : start + 2], "big")
        if name_end < end:  # whatever the name is: who says 5 expects an answer of MQTT 5
            self.version = Version.V5 if data[name_end] >= Version.V5 else Version.V311

    def _take_known(self, data: bytes, position: int, end: int, items: list[Packet | Run]) -> int:
        """Take what can be taken quickly and tell where it ended; nothing, unless a subclass knows how."""
        return position

    def _take_other(self, first: int, body: Body, items: list[Packet | Run]) -> None:
        packet = decode_packet(first, body, self.version)
        if type(packet) is Connect:
            self.version = packet.version
        items.append(packet)

    def _take_publish(self, data: bytes, start: int, body: int, stop: int, items: list[Packet | Run]) -> int:
        """Append what the PUBLISH at `start` is and tell where reading goes on."""
        items.append(decode_packet(data[start], Body(data, body, stop), self.version))
        return stop

    def _keep(self, data: bytes, position: int, need: int) -> None:
        self._parts = [data[position:]]
        self._have = len(data) - position
        self._need = need
        self.is_amid_large = need >= LARGE_BYTES


class RunReader(PacketReader):
    """Reads as a server does: publishes become runs, topic aliases are resolved here.

    Before CONNECT nothing larger than `control_limit_bytes` is taken, and what a publish has beside its
    payload never is. `is_plain` tells of the last chunk that it held nothing but publishes at QoS 0,
    which need no answer.
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
    )

    def __init__(
        self,
        limit_bytes: int,
        names: Names,
        aliases_limit: int = 0,
        control_limit_bytes: int | None = None,
        abilities: Abilities = ALL_ABILITIES,
    ) -> None:
        control_limit_bytes = limit_bytes if control_limit_bytes is None else control_limit_bytes
        super().__init__(min(limit_bytes, control_limit_bytes), control_limit_bytes=control_limit_bytes)
        self.is_plain = True
        self._publish_limit_bytes = limit_bytes
        self._names = names
        self._abilities = abilities
        self._aliases: dict[int, str] | None = None
        self._aliases_limit = aliases_limit
        self._set_version()

    def _set_version(self) -> None:
        is_roomy = self._limit_bytes > 0x4000
        self._shapes = _quick_shapes(self.version, self._abilities) if is_roomy else NO_SHAPES
        self._tail = int(self.version is Version.V5)  # bytes of an empty property section

    def feed(self, data: bytes) -> list[Packet | Run]:
        """Everything that is complete now, in order; the common chunk never leaves the hot loop."""
        self.is_plain = True
        if self._parts is not None or self.error is not None:
            return super().feed(data)
        items: list[Packet | Run] = []
        position = self._take_known(data, 0, len(data), items)
        if position < len(data):
            self._go_on(data, position, items)
        return items

    def _take_other(self, first: int, body: Body, items: list[Packet | Run]) -> None:
        self.is_plain = False
        super()._take_other(first, body, items)
        if first == CONNECT:
            self._limit_bytes = self._publish_limit_bytes
            self._set_version()

    def _take_known(  # noqa: PLR0915 - one loop, because a call per message would cost as much again
        self, data: bytes, position: int, end: int, items: list[Packet | Run]
    ) -> int:
        """The hot loop: publishes to known topics, without properties, that are whole.

        Whatever else it meets is left to the general path, which also decides what is malformed.
        """
        shapes, find_name, tail = self._shapes, self._names.get, self._tail
        last_topic, last_stride = None, 0
        limit_bytes = self._limit_bytes - 5  # less the longest header
        append = items.append
        try:
            while position < end:
                first = data[position]
                shape = shapes[first]
                size = data[position + 1]
                body = position + 2
                if shape is None:
                    packet_id = data[body] << 8 | data[body + 1]
                    if first != 0x40 or size != 2 or not packet_id:
                        return position
                    append(PubAck(packet_id))  # at QoS 1 as common as PUBLISH
                    self.is_plain = False
                    position += 4
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
                topic = find_name(data[topic_start:topic_end])
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
                    append(Run(topic, slab, head - position, stride, 1, shape, None, NEVER, packet_id))
                    self.is_plain = False
                    position = stop
                    continue
                if head > stop or (tail and data[head - 1]):
                    return position
                if topic is last_topic and stride == last_stride and stride < MERGED_BELOW_BYTES:
                    stop = _extend(data, position, head, stride, end)
                    slab = data[position:stop]
                    append(Run(topic, slab, head - position, stride, len(slab) // stride, shape))
                else:
                    append(Run(topic, data[position:stop], head - position, stride, 1, shape))
                    last_topic, last_stride = topic, stride
                position = stop
        except IndexError:  # a header cut by the end of the chunk
            pass
        return position

    def _take_publish(self, data: bytes, start: int, body: int, stop: int, items: list[Packet | Run]) -> int:
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
        topic = self._names[data[topic_start:head]]
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
            raise InvalidPayloadFormat("the payload is not UTF-8")  # with an identifier it has its own answer
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
