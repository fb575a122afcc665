"""Runs of acknowledgements: consecutive packets of one kind in their shortest form, as one value.

At QoS 1 and 2 acknowledgements are as common as messages, and clients send them many at a time. The shortest
form is the same in both versions: four bytes that mean success. Longer forms are packets of their own
(`packets.py`).
"""

import re
from collections.abc import Callable
from struct import unpack
from typing import Final, final

from penstock.wire.mqtt.packets import PacketType, Version
from penstock.wire.mqtt.reasons import ReasonCode

PUBACK: Final = int(PacketType.PUBACK)
PUBREC: Final = int(PacketType.PUBREC)
PUBREL: Final = int(PacketType.PUBREL)
PUBCOMP: Final = int(PacketType.PUBCOMP)
SUCCESS: Final = int(ReasonCode.SUCCESS)
ACK_BYTES: Final = 4
"""Length of an acknowledgement in its shortest form."""


@final
class AckRun:
    """Acknowledgements of one kind, in order. A run may name a packet identifier more than once.

    `kind` is one of `PUBACK`, `PUBREC`, `PUBREL` and `PUBCOMP`. A run of a client has no reason but success;
    responses of a server may have another.
    """

    __slots__ = ("kind", "packet_ids", "reason")

    def __init__(self, kind: int, packet_ids: tuple[int, ...], reason: int = SUCCESS) -> None:
        self.kind = kind
        self.packet_ids = packet_ids
        self.reason = reason

    def __repr__(self) -> str:
        return f"AckRun({PacketType(self.kind).name}, {self.packet_ids}, reason={self.reason})"


_FIRST_BYTES = {PUBACK: 0x40, PUBREC: 0x50, PUBREL: 0x62, PUBCOMP: 0x70}
_Match = Callable[[bytes, int, int], re.Match[bytes] | None]
_MATCHES: dict[int, _Match] = {
    first: re.compile(b"(?:" + re.escape(bytes((first, 2))) + b"..)++", re.DOTALL).match
    for first in _FIRST_BYTES.values()
}


def take_ack_run(data: bytes, start: int, end: int) -> AckRun | None:
    """Return the acknowledgements at `start` that are whole before `end`.

    None stands for anything else, for the general path to read or refuse: another packet or form, a packet
    that is cut, the packet identifier zero. Those before it are returned.
    """
    first = data[start]
    match = _MATCHES.get(first)
    following = start + ACK_BYTES
    if match is None or following > end:
        return None
    if following < end and data[following] == first:
        found = match(data, start, end)
        if found is None:
            return None
        stop = found.end()
        numbers: tuple[int, ...] = unpack(f">{stop - start >> 1}H", data[start:stop])[1::2]
        if 0 in numbers:
            numbers = numbers[: numbers.index(0)]
        return AckRun(first >> 4, numbers) if numbers else None
    number = data[start + 2] << 8 | data[start + 3]
    return AckRun(first >> 4, (number,)) if data[start + 1] == 2 and number else None


def encode_ack_run(run: AckRun, version: Version) -> bytes:
    """Encode one packet for each packet identifier; MQTT 3.1.1 has no reasons."""
    reason = bytes((run.reason,)) if run.reason and version is Version.V5 else b""
    head = bytes((_FIRST_BYTES[run.kind], 2 + len(reason)))
    return b"".join([head + number.to_bytes(2, "big") + reason for number in run.packet_ids])
