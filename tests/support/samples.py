"""Runs and sessions for tests, made in one line."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from penstock.core.access.identity import Identity
from penstock.core.ports.connection import ConnectionPort
from penstock.core.ports.log import Listing, Lost
from penstock.core.sessions.session import Session
from penstock.model import Door, Properties
from penstock.runs import NEVER, Run, Shape


@lru_cache(maxsize=256)
def sample_shape(door: Door, qos: int, retain: bool, is_plain: bool) -> Shape:
    """The one shape of bare payloads with these properties; shapes are compared by identity."""
    return Shape("", door, qos, retain, is_plain)


FIELDS = (
    "topic",
    "slab",
    "head",
    "stride",
    "count",
    "shape",
    "properties",
    "ttl",
    "packet_id",
    "client_id",
    "sequence",
    "offset",
    "published_at",
    "expires_at",
)
"""Fields of a run, in the order of its parameters."""


def fields_of(run: Run) -> dict[str, Any]:
    """Everything that is in a run, for comparison."""
    return {name: getattr(run, name) for name in FIELDS}


def changed(run: Run, **changes: Any) -> Run:
    """A copy of a run with some other fields."""
    return Run(**(fields_of(run) | changes))


def make_run(
    topic: str,
    *payloads: bytes,
    qos: int = 0,
    retain: bool = False,
    sequence: int = 0,
    offset: int = 0,
    expires_at: float = NEVER,
    ttl: float = NEVER,
    properties: Properties | None = None,
    client_id: str = "",
    door: Door = Door.MQTT,
) -> Run:
    """A run of payloads, all of the same length; stamps are for tests that have no broker to give them."""
    stride = len(payloads[0])
    assert all(len(payload) == stride for payload in payloads), "a run has payloads of one length"
    is_plain = not retain and not ttl and properties is None
    run = Run(topic, b"".join(payloads), 0, stride, len(payloads), sample_shape(door, qos, retain, is_plain))
    run.properties, run.ttl, run.client_id = properties, ttl, client_id
    run.sequence, run.offset, run.expires_at = sequence, offset, expires_at
    return run


def payloads_of(run: Run) -> list[bytes]:
    """The payloads of a run, in order."""
    return [run.payload(index) for index in range(run.count)]


def readable(found: Iterable[Listing | Lost]) -> list[Run]:
    """The messages of a scan that lost nothing, as runs; they have to agree with its columns."""
    runs: list[Run] = []
    for listing in found:
        assert isinstance(listing, Listing), f"the scan could not read {listing}"
        listed = listing.runs()
        offsets = [offset for run in listed for offset in range(run.offset, run.last_offset + 1)]
        names = [run.topic for run in listed for _ in range(run.count)]
        assert list(listing.offsets) == offsets
        assert [listing.names[topic] for topic in listing.topics] == names
        assert sum(listing.sizes) == sum(len(run.slab) for run in listed)
        assert listing.may_expire or not any(run.ttl for run in listed)
        runs += listed
    return runs


def make_session(
    client_id: str, connection: ConnectionPort | None = None, *, is_flowing: bool | None = None
) -> Session:
    """A session, connected if it gets a sink, and then flowing unless told otherwise."""
    session = Session(Identity(None, client_id), Door.MQTT)
    session.connection = connection
    session.is_flowing = connection is not None if is_flowing is None else is_flowing
    return session
