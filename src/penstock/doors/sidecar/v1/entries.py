"""Entries of a batch as runs: payloads of one length that follow one another are one.

Everything about the form of an entry is checked here; whether it may be published is core's to say.
"""

from collections.abc import Iterable, Sequence
from itertools import chain, groupby
from typing import TYPE_CHECKING

from msgspec.structs import replace

from penstock.core.broker import Steps
from penstock.core.publishing.properties import MAX_TEXTS_BYTES, MAX_TTL_MS, PAIR_BYTES, check_properties
from penstock.core.settings import CoreSettings
from penstock.errors import InvalidRequest, TooLarge
from penstock.model import Door, Properties
from penstock.runs import NEVER, Run, Shape, bare_shape
from penstock.wire.sidecar.batches import FRAMED_BELOW_BYTES, LAYOUT, Entry

if TYPE_CHECKING:
    from penstock.wire.sidecar.messages.penstock import Messages

RUN_BYTES = 64 * 1024
"""Approximate limit of a run's slab, which a ring stores and a write sends as one piece."""
RUNS_A_STEP = 200
"""Runs of an entry that are made in one step."""
_PLAIN = Shape(LAYOUT, Door.SIDECAR, 1, retain=False, is_plain=True)
"""Publishes are acknowledged, so they have QoS 1: offline subscribers get them later."""
_MORTAL = Shape(LAYOUT, Door.SIDECAR, 1, retain=False, is_plain=False)


def runs_of(entry: Entry, settings: CoreSettings) -> Steps[list[Run]]:
    """The runs of an entry, in its order and in steps; of one with message ids each is one message.

    Raises:
        PenstockError: it has no payload, one that is too large, or something that cannot travel with it.
    """
    rest = entry.rest
    if not entry.messages:
        raise InvalidRequest("an entry has at least one payload")
    sizes = [*map(len, rest.payloads), entry.stride - entry.head]
    if max(sizes) > settings.max_payload_bytes:
        raise TooLarge(f"a payload has {max(sizes)} bytes and {settings.max_payload_bytes} are allowed")
    ttl, properties = _ttl_of(rest), _properties_of(rest)
    if properties is not None:
        check_properties(properties, settings.topic)
    if rest.message_ids:
        return (yield from _runs_with_ids(entry, ttl, properties or Properties(), settings))
    if properties is None and not rest.retain:
        runs = _runs_as_they_came(entry, _MORTAL if ttl else _PLAIN, ttl)
        payloads: Iterable[bytes] = rest.payloads
    else:
        runs, payloads = [], _payloads_of(entry)
    shape = bare_shape(Door.SIDECAR, 1, rest.retain)
    for alike in _alike(payloads):
        runs.append(Run(rest.topic, b"".join(alike), 0, len(alike[0]), len(alike), shape, properties, ttl))
        if len(runs) % RUNS_A_STEP == 0:
            yield
    return runs


def carried_bytes(runs: Sequence[Run]) -> int:
    """About how much the messages of an entry carry beside their payloads, all together."""
    properties = runs[0].properties
    if properties is None:
        return 0
    texts = [properties.content_type or "", properties.response_topic or "", *chain(*properties.user)]
    each = sum(map(len, texts)) + len(properties.correlation_id or b"") + PAIR_BYTES * len(properties.user)
    return each * sum(run.count for run in runs)


def has_ids(entry: Entry) -> bool:
    """Each message is published once, however often it is sent."""
    return bool(entry.rest.message_ids)


def _runs_as_they_came(entry: Entry, shape: Shape, ttl: float) -> list[Run]:
    if not entry.count:
        return []
    topic, slab, head, stride = entry.rest.topic, entry.slab, entry.head, entry.stride
    if len(slab) <= RUN_BYTES:
        return [Run(topic, slab, head, stride, entry.count, shape, None, ttl)]
    length = RUN_BYTES // stride * stride
    pieces = [slab[start : start + length] for start in range(0, len(slab), length)]
    return [Run(topic, piece, head, stride, len(piece) // stride, shape, None, ttl) for piece in pieces]


def _runs_with_ids(
    entry: Entry, ttl: float, properties: Properties, settings: CoreSettings
) -> Steps[list[Run]]:
    rest, shape = entry.rest, bare_shape(Door.SIDECAR, 1, entry.rest.retain)
    if len(rest.message_ids) != entry.messages:
        raise InvalidRequest(f"{entry.messages} payloads have {len(rest.message_ids)} message ids")
    longest = max(rest.message_ids, key=lambda message_id: len(message_id.encode()))
    check_properties(replace(properties, message_id=longest), settings.topic)  # and so with all others
    runs: list[Run] = []
    for payload, message_id in zip(_payloads_of(entry), rest.message_ids, strict=True):
        check_properties(Properties(message_id=message_id), settings.topic)
        theirs = replace(properties, message_id=message_id)
        runs.append(Run(rest.topic, payload, 0, len(payload), 1, shape, theirs, ttl))
        if len(runs) % RUNS_A_STEP == 0:
            yield
    return runs


def _payloads_of(entry: Entry) -> list[bytes]:
    slab, head, stride = entry.slab, entry.head, entry.stride
    starts = range(0, len(slab), stride or 1)
    return [slab[start + head : start + stride] for start in starts] + list(entry.rest.payloads)


def _alike(payloads: Iterable[bytes]) -> Iterable[list[bytes]]:
    """Neighbours of one length, in portions that make no run too long."""
    for size, neighbours in groupby(payloads, len):
        same = list(neighbours)
        portion = RUN_BYTES // size if 0 < size < FRAMED_BELOW_BYTES else 1  # empty payloads have no slab
        for start in range(0, len(same), portion):
            yield same[start : start + portion]


def _ttl_of(rest: "Messages") -> float:
    if not 0 <= rest.ttl_ms <= MAX_TTL_MS:
        raise InvalidRequest(f"a lifetime has 0 to {MAX_TTL_MS} ms, and this one {rest.ttl_ms}")
    return rest.ttl_ms / 1000 if rest.ttl_ms else NEVER


def _properties_of(rest: "Messages") -> Properties | None:
    """Return the properties of each message; None if there are none.

    Raises:
        TooLarge: too many pairs to check.
    """
    if len(rest.user_properties) * PAIR_BYTES > MAX_TEXTS_BYTES:
        raise TooLarge(f"there are {len(rest.user_properties)} pairs to travel with the payload")
    if not (rest.content_type or rest.correlation_id or rest.response_topic or rest.user_properties):
        return None
    return Properties(
        content_type=rest.content_type or None,
        correlation_id=rest.correlation_id or None,
        response_topic=rest.response_topic or None,
        user=tuple((each.name, each.value) for each in rest.user_properties),
    )
