"""Packet reader: finds packets in a stream of bytes, however it is cut, and decodes them.

The client and the tests read with this, a server with the subclass in `run_reader.py`. After bad bytes
`error` is set and nothing more is read; valid packets before them are still returned.
"""

from sys import maxsize

from penstock.runs import Run, Train
from penstock.wire.mqtt.ack_runs import AckRun
from penstock.wire.mqtt.decode import BRIDGE_BIT, decode_packet
from penstock.wire.mqtt.packets import Connect, Packet, PacketType, Version
from penstock.wire.mqtt.primitives import Body, take_varint
from penstock.wire.mqtt.reasons import MqttWireError, PacketTooLarge

CONNECT = PacketType.CONNECT << 4
LARGE_BYTES = 8192
Item = Packet | Run | Train | AckRun
"""Anything that a reader returns. The one of a client returns packets only."""


class PacketReader:
    """Splits input into packets and decodes each.

    `control_limit_bytes` is for every packet but PUBLISH: decoding a large one would block the loop.
    `is_greeted` is True once a CONNECT has begun, valid or not. A chunk of more packets than `work_limit`
    stands for is read in several steps; `position` is where the next one starts.
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
        "position",
        "version",
        "work",
        "work_limit",
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
        self.position = 0
        self.work = 0  # of the present step, beyond one unit for each item
        self.work_limit = maxsize

    def feed(self, data: bytes, start: int = 0) -> list[Item]:
        """Everything that is complete now, in order, up to the work of one step.

        Args:
            start: where the last step on the same chunk has ended.
        """
        self.work = 0
        items: list[Item] = []
        self.position = position = start if self._parts is None else self._complete(data, start, items)
        if position < len(data) and self.error is None:
            self._read_more(data, position, items)
        return items

    def _complete(self, data: bytes, position: int, items: list[Item]) -> int:
        """Finish the packet that earlier chunks began, and return where the next one starts.

        It is joined once, whatever its size, and what follows it is not copied at all.
        """
        while self._parts is not None and self.error is None:
            stop = position + self._need - self._have
            piece = (
                data if not position and stop >= len(data) else data[position:stop]
            )  # compiled slices copy
            self._parts.append(piece)
            self._have += len(piece)
            if self._have < self._need:
                return len(data)
            whole, self._parts = b"".join(self._parts), None
            self.is_amid_large = False
            position = stop
            self._read_more(whole, 0, items)  # decodes it, or stores it again with its full length known
        return position

    def stop(self) -> None:
        """Stop reading."""
        self._parts = None
        self.error = self.error or MqttWireError("no longer read")

    def _read_more(self, data: bytes, position: int, items: list[Item]) -> None:
        try:
            self._split(data, position, items)
        except MqttWireError as error:
            self.error = error.with_traceback(None)  # which would hold this reader, and that the error

    def _split(self, data: bytes, position: int, items: list[Item]) -> None:
        self.position = end = len(data)
        while (position := self._take_known(data, position, end, items)) < end:
            if len(items) + self.work >= self.work_limit:
                self.position = position
                return None
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
        """Read a CONNECT's version first: a refusal has to suit it."""
        self.is_greeted = True
        name_end = start + 2 + int.from_bytes(data[start : start + 2], "big")
        if name_end < end:  # for any name: a client of level 5 expects a response of MQTT 5
            level = data[name_end]  # with the high bit it is a bridge, which knows 3.1.1 (MQTT-3.1.2-2)
            self.version = Version.V5 if Version.V5 <= level < BRIDGE_BIT else Version.V311

    def _take_known(self, data: bytes, position: int, end: int, items: list[Item]) -> int:
        """Read what a subclass can read fast, and return where it ended."""
        return position

    def _take_other(self, first: int, body: Body, items: list[Item]) -> None:
        packet = decode_packet(first, body, self.version)
        if type(packet) is Connect:
            self.version = packet.version
        items.append(packet)

    def _take_publish(self, data: bytes, start: int, body: int, stop: int, items: list[Item]) -> int:
        """Append the PUBLISH at `start`, and return where reading continues."""
        items.append(decode_packet(data[start], Body(data, body, stop), self.version))
        return stop

    def _keep(self, data: bytes, position: int, need: int) -> None:
        self._parts = [data[position:]]
        self._have = len(data) - position
        self._need = need
        self.is_amid_large = need >= LARGE_BYTES
