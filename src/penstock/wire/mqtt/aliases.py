"""Outbound topic aliases: a topic is sent to a client once, and then replaced by its alias.

Packets are encoded once for all subscribers, and rewritten here for the clients that announced a Topic Alias
Maximum. The alias becomes the first property; everything behind it is copied unchanged.
"""

from collections import OrderedDict

from penstock.wire.mqtt.primitives import MAX_VARINT, encode_varint, take_varint

ALIAS_BYTES = 3
"""Bytes of an alias among the properties; shorter topics get none."""
_NO_TOPIC = b"\x00\x00"
_ALIAS_ALONE = b"\x03\x23"  # a property section of three bytes: a topic alias, whose number follows
_OPENINGS = tuple(encode_varint(size) + _NO_TOPIC for size in range(2_048))  # by remaining length


class AliasWriter:
    """The aliases of one MQTT 5 connection, given to topics as they come.

    Args:
        limit: the most aliases that may be in use, at most the client's Topic Alias Maximum; 0 for none.
            As many topics are remembered.
        limit_bytes: the client's Maximum Packet Size; 0 if it has none.
    """

    __slots__ = ("_aliases", "_limit", "_limit_bytes")

    def __init__(self, limit: int, limit_bytes: int) -> None:
        # By topic, with its length before it; the least recently used first.
        self._aliases: OrderedDict[bytes, bytes] = OrderedDict()
        self._limit = limit
        self._limit_bytes = limit_bytes or MAX_VARINT

    def rewrite(  # noqa: PLR0915 - one loop, because a call per message would cost as much again
        self, data: bytes
    ) -> bytes:
        """The same packets with aliases, as far as that makes them no larger than the client takes.

        `data` is any number of whole MQTT 5 packets, none of which has an alias. This is the path of every
        message to such a client, so it is one loop; packets that are not changed are not copied one by one.
        """
        find_alias, touch = self._aliases.get, self._aliases.move_to_end
        parts: list[bytes] = []
        append = parts.append
        position = kept = 0  # the bytes between them are copied unchanged
        end, last_topic = len(data), None
        while position < end:
            first = data[position]
            size = data[position + 1]
            body = position + 2
            if size >= 0x80:
                if data[body] < 0x80:
                    size += (data[body] - 1) << 7
                    body += 1
                else:
                    size, body = _take_size(data, position + 1)
            stop = body + size
            if first >> 4 != 3:
                position = stop
                continue
            head = body + 2 + data[body + 1]  # too short for a long topic, which therefore is not found
            topic = data[body:head]
            alias = find_alias(topic)
            is_numbered = first & 6
            properties = head + 2 if is_numbered else head
            if alias is None or data[properties] > 0x7C:
                kept = self._rewrite_other(data, kept, position, body, stop, parts)
                position, last_topic = stop, None
                continue
            size += body + 5 - head
            append(data[kept : position + 1])
            append(_OPENINGS[size] if size < 2_048 else encode_varint(size) + _NO_TOPIC)
            if is_numbered:
                append(data[head:properties])
            kept = properties + 1
            if data[properties]:
                append(bytes((data[properties] + ALIAS_BYTES,)) + alias[1:])
            else:
                append(alias)
            if topic != last_topic:
                touch(topic)
                last_topic = topic
            elif not is_numbered and not data[properties]:
                prefix = data[position:kept]
                if data.startswith(prefix, stop):  # more of the same topic and size, as they come in runs
                    opening, stride = prefix[:1] + parts[-2] + alias, stop - position
                    while data.startswith(prefix, stop):
                        append(data[kept:stop])
                        append(opening)
                        kept += stride
                        stop += stride
            position = stop
        if not parts:
            return data
        append(data[kept:])
        return b"".join(parts)

    def _rewrite_other(
        self, data: bytes, kept: int, start: int, body: int, stop: int, parts: list[bytes]
    ) -> int:
        """Append a PUBLISH to a topic without alias, or with long fields; return where unchanged bytes
        begin."""
        topic_end = body + 2 + int.from_bytes(data[body : body + 2], "big")
        topic = data[body:topic_end]
        properties = topic_end + 2 if data[start] & 6 else topic_end
        length, rest = _take_size(data, properties)
        section = encode_varint(length + ALIAS_BYTES)
        alias = self._aliases.get(topic)
        shown = _NO_TOPIC if alias else topic
        size = len(shown) + properties - topic_end + len(section) + ALIAS_BYTES + stop - rest
        if alias is not None:
            self._aliases.move_to_end(topic)
        elif len(topic) - 2 <= ALIAS_BYTES or not self._limit or not self._fits(size):
            return kept
        else:
            alias = self._give(topic)
        parts += (data[kept : start + 1], encode_varint(size), shown)
        parts += (data[topic_end:properties], section, alias[1:])
        return rest

    def _fits(self, size: int) -> bool:
        """A packet with this remaining length may be sent."""
        return 1 + len(encode_varint(min(size, MAX_VARINT))) + size <= self._limit_bytes

    def _give(self, topic: bytes) -> bytes:
        """An alias for a topic: one that is free, or that of the topic that was not used for longest."""
        number = len(self._aliases) + 1
        if number <= self._limit:
            alias = _ALIAS_ALONE + number.to_bytes(2, "big")
        else:
            _, alias = self._aliases.popitem(last=False)
        self._aliases[topic] = alias
        return alias


def _take_size(data: bytes, position: int) -> tuple[int, int]:
    """A variable byte integer of a whole packet, and where it ends."""
    found = take_varint(data, position)
    assert found is not None
    return found
