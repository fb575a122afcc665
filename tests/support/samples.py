"""Runs and sessions for tests, made in one line."""

from collections.abc import Iterable
from functools import lru_cache

from penstock.core.access.identity import Identity
from penstock.core.ports.connection import ConnectionPort
from penstock.core.ports.log import Lost
from penstock.core.sessions.session import Session
from penstock.model import NEVER, Door, Properties, Run, Shape


@lru_cache(maxsize=256)
def sample_shape(door: Door, qos: int, retain: bool, is_plain: bool) -> Shape:
    """The one shape of bare payloads with these properties; shapes are compared by identity."""
    return Shape("", door, qos, retain, is_plain)


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


def readable(found: Iterable[Run | Lost]) -> list[Run]:
    """The runs of a scan that lost nothing."""
    runs: list[Run] = []
    for each in found:
        assert isinstance(each, Run), f"the scan could not read {each}"
        runs.append(each)
    return runs


def make_session(
    client_id: str, connection: ConnectionPort | None = None, *, is_flowing: bool | None = None
) -> Session:
    """A session, connected if it gets a sink, and then flowing unless told otherwise."""
    session = Session(Identity(None, client_id), Door.MQTT)
    session.connection = connection
    session.is_flowing = connection is not None if is_flowing is None else is_flowing
    return session
