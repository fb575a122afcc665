"""Encodings of messages for MQTT subscribers: the door's implementation of core's `Encoding`.

They are interned, so that equal ones are one object and core compares them by identity.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from math import ceil

from penstock.core.delivery.reencoding import PendingEncoding
from penstock.core.ports.connection import Encoding, Frame
from penstock.core.subscriptions.subscription import Options
from penstock.doors.mqtt.meta_properties import LARGEST_BYTES, MetaProperties
from penstock.runs import NEVER, Run, Shape
from penstock.wire.mqtt.abilities import LAYOUTS
from penstock.wire.mqtt.encode import DUP, encode_frame, publish_properties
from penstock.wire.mqtt.packets import Version

FRAMING_BYTES = 64
"""More than header, lengths, packet identifier and expiry of a PUBLISH ever take."""


class MqttEncoding:
    """PUBLISH packets of one version, with the options of a subscription. Made by `mqtt_encoding`."""

    __slots__ = (
        "_is_transparent",
        "_layout",
        "_marks",
        "_retain_as_published",
        "_subscription_ids",
        "_version",
        "has_cursor",
        "is_retained",
        "limit_bytes",
        "no_local",
        "qos",
    )

    def __init__(
        self,
        version: Version,
        qos: int,
        no_local: bool,
        retain_as_published: bool,
        subscription_ids: tuple[int, ...],
        limit_bytes: int,
        is_retained: bool,
        marks: MetaProperties | None,
    ) -> None:
        self.qos = qos
        self.no_local = no_local
        self.limit_bytes = limit_bytes
        self._version = version
        self._layout = LAYOUTS[version]
        self._retain_as_published = retain_as_published
        self._subscription_ids = subscription_ids
        self.is_retained = is_retained
        self._marks = marks
        self.has_cursor = marks is not None and version is Version.V5  # 3.1.1 has nothing to carry marks
        # Nothing has to be added: a frame of the same layout can be copied.
        self._is_transparent = not (subscription_ids or is_retained or self.has_cursor)

    def passes(self, shape: Shape, longest: int) -> bool:
        """Return whether frames of this shape can be copied as they are."""
        is_native = self._is_transparent and shape.layout is self._layout
        return is_native and not (shape.retain or shape.qos) and not 0 < self.limit_bytes < longest

    def encode(self, runs: Sequence[Run], now: float) -> bytes:
        """All messages at QoS 0, joined."""
        longest = max([run.stride for run in runs]) if self.limit_bytes else 0
        if self.passes(runs[0].shape, longest) and not (self._version is Version.V5 and _is_mortal(runs)):
            return runs[0].slab if len(runs) == 1 else b"".join([run.slab for run in runs])
        return b"".join([piece for run in runs for frame in self._make(run, 0, now) for piece in frame[:2]])

    def frames(self, runs: Sequence[Run], now: float, *, again: bool = False) -> list[Frame]:
        """Encode all messages at QoS 1 or 2, each split at its packet identifier."""
        shape = runs[0].shape
        level = min(shape.qos, self.qos)
        is_native = self._is_transparent and shape.layout is self._layout
        if is_native and level == shape.qos and not again and (not self.limit_bytes or self._all_fit(runs)):
            return self._cut(runs, level, now)
        frames = [frame for run in runs for frame in self._make(run, level, now)]
        if again:
            return [(bytes((before[0] | DUP,)) + before[1:], after, run) for before, after, run in frames]
        return frames

    def oversize(self, runs: Sequence[Run], now: float) -> list[Run]:
        """The messages that exceed what the client said it takes."""
        doubtful = [run for run in runs if not self._surely_fits(run)]
        level = min(runs[0].shape.qos, self.qos)
        frames = [frame for run in doubtful for frame in self._make_any(run, level, now)]
        return [run for before, after, run in frames if self._is_too_large(before, after, level)]

    def _all_fit(self, runs: Sequence[Run]) -> bool:
        """Frames that are passed on as they are stay within the limit."""
        return max([run.stride for run in runs]) <= self.limit_bytes

    def _surely_fits(self, run: Run) -> bool:
        """True if the frame stays within the limit whatever is added, known without encoding."""
        if not self.limit_bytes:
            return True
        if run.properties is not None and not run.shape.layout:
            return False  # a bare payload's properties are in no bytes yet
        added = FRAMING_BYTES + 4 * len(run.topic) + 5 * len(self._subscription_ids)
        added += LARGEST_BYTES if self._marks else 0
        return run.stride + added <= self.limit_bytes

    def merge(self, *others: Encoding) -> "MqttEncoding":
        """One copy for overlapping subscriptions: the highest QoS, all identifiers (MQTT-3.3.4-3)."""
        mine = [self, *[other for other in others if isinstance(other, MqttEncoding)]]
        assert len(mine) == 1 + len(others)
        return mqtt_encoding(
            self._version,
            max([each.qos for each in mine]),
            all(each.no_local for each in mine),
            any(each._retain_as_published for each in mine),
            tuple(chain.from_iterable([each._subscription_ids for each in mine])),
            self.limit_bytes,
            marks=next((each._marks for each in mine if each._marks), None),
        )

    def as_retained(self) -> Encoding:
        """Retained values keep their flag, whatever the subscription says (MQTT-3.3.1-8)."""
        return self._copy(self._version, self.limit_bytes, True)

    def on_wire(self, version: Version, limit_bytes: int) -> "MqttEncoding":
        """Return the encoding for a client that reconnected with another version or packet size."""
        return self._copy(version, limit_bytes, self.is_retained)

    def _copy(self, version: Version, limit_bytes: int, is_retained: bool) -> "MqttEncoding":
        ids, as_published = self._subscription_ids, self._retain_as_published
        return mqtt_encoding(
            version, self.qos, self.no_local, as_published, ids, limit_bytes, is_retained, self._marks
        )

    def _cut(self, runs: Sequence[Run], level: int, now: float) -> list[Frame]:
        """Copy frames from the received bytes, without encoding."""
        first = 0x30 | level << 1
        skip = 2 if self._version is Version.V311 else 3  # identifier, and the empty properties of MQTT 5
        frames: list[Frame] = []
        for run in runs:
            slab = run.slab
            if run.count == 1 and slab[0] == first and not run.expires_at:
                cut = run.head - skip
                frames.append((slab[:cut], slab[cut + 2 :], run))
            else:  # a duplicate or retained flag is the publisher's
                frames += self._make(run, level, now)
        return frames

    def _make(self, run: Run, level: int, now: float) -> list[Frame]:
        frames = self._make_any(run, level, now)
        if self.limit_bytes:
            return [frame for frame in frames if not self._is_too_large(frame[0], frame[1], level)]
        return frames

    def _make_any(self, run: Run, level: int, now: float) -> list[Frame]:
        retain = self.is_retained or (run.shape.retain and self._retain_as_published)
        if run.count == 1:
            return [(*encode_frame(run, 0, level, retain, self._properties(run, now)), run)]
        parts = [run.part(index, 1) for index in range(run.count)]
        properties = self._properties(parts[0], now)
        frames: list[Frame] = []
        for index, part in enumerate(parts):
            if index and self._marks is not None:
                properties = self._properties(part, now)  # each message has its own
            frames.append((*encode_frame(run, index, level, retain, properties), part))
        return frames

    def _properties(self, part: Run, now: float) -> bytes:
        """The property section of one message; without marks it is that of its whole run."""
        if self._version is Version.V311:
            return b""
        expiry = None if part.expires_at == NEVER else max(ceil(part.expires_at - now), 0)
        marks = () if self._marks is None else self._marks.of(part)
        return publish_properties(part.properties, expiry, self._subscription_ids, marks)

    def _is_too_large(self, before: bytes, after: bytes, level: int) -> bool:
        return len(before) + len(after) + (2 if level else 0) > self.limit_bytes


def _is_mortal(runs: Sequence[Run]) -> bool:
    """Return whether a run has a lifetime, as rules give one: MQTT 5 subscribers get what is left of it."""
    for run in runs:  # noqa: SIM110 - half the time of `any`
        if run.expires_at:
            return True
    return False


@lru_cache(maxsize=65_536)
def mqtt_encoding(
    version: Version,
    qos: int,
    no_local: bool,
    retain_as_published: bool,
    subscription_ids: tuple[int, ...],
    limit_bytes: int = 0,
    is_retained: bool = False,
    marks: MetaProperties | None = None,
) -> MqttEncoding:
    """The one form with these properties."""
    return MqttEncoding(
        version, qos, no_local, retain_as_published, subscription_ids, limit_bytes, is_retained, marks
    )


def encoding_of(options: Options, version: Version, limit_bytes: int, marks: MetaProperties) -> MqttEncoding:
    """The form of a subscription."""
    ids = (options.identifier,) if options.identifier else ()
    return mqtt_encoding(
        version,
        options.qos,
        options.no_local,
        options.retain_as_published,
        ids,
        limit_bytes,
        marks=marks if options.marks else None,
    )


def encoding_on_wire(
    encoding: Encoding, version: Version, limit_bytes: int, marks: MetaProperties
) -> Encoding:
    """The encoding of an earlier connection, or of a session recovered from disk, for a new connection."""
    if isinstance(encoding, PendingEncoding):
        parts = [encoding_of(options, version, limit_bytes, marks) for options in encoding.wishes]
        merged = parts[0].merge(*parts[1:])
        return merged.as_retained() if encoding.is_retained else merged
    assert isinstance(encoding, MqttEncoding)
    return encoding.on_wire(version, limit_bytes)
