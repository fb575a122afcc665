"""What hypothesis draws packets, streams and cuts from. Everything here is valid MQTT."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from penstock.wire.mqtt import (
    NO_PROPERTIES,
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PacketProperties,
    PingReq,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    Reply,
    Request,
    SubAck,
    Subscribe,
    UnsubAck,
    Unsubscribe,
    Version,
    Will,
    encode_packet,
)
from tests.support.examples import examples
from tests.wire.mqtt.catalogue import PROPERTIES, REASONS

thorough = examples(30, print_blob=True)

versions = st.sampled_from(Version)
qos_levels = st.integers(0, 2)
packet_ids = st.integers(1, 0xFFFF)
shorts = st.integers(0, 0xFFFF)
longs = st.integers(0, 0xFFFFFFFF)
bits = st.integers(0, 1)
blobs = st.binary(max_size=20)
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
topics = st.text(st.characters(codec="utf-8", exclude_characters="\0+#"), min_size=1, max_size=12)
filters = st.one_of(texts, st.sampled_from(("#", "a/+/b", "$share/g/a/#")))

_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "payload_format": bits,
    "message_expiry": longs,
    "content_type": texts,
    "response_topic": topics,
    "correlation_data": blobs,
    "session_expiry": longs,
    "assigned_client_id": texts,
    "server_keep_alive": shorts,
    "authentication_method": texts,
    "authentication_data": blobs,
    "request_problem_information": bits,
    "will_delay": longs,
    "request_response_information": bits,
    "response_information": texts,
    "server_reference": texts,
    "reason_string": texts,
    "receive_maximum": st.integers(1, 0xFFFF),
    "topic_alias_maximum": shorts,
    "topic_alias": st.integers(1, 0xFFFF),
    "maximum_qos": bits,
    "retain_available": bits,
    "maximum_packet_size": st.integers(1, 0xFFFFFFFF),
    "wildcard_subscription_available": bits,
    "subscription_ids_available": bits,
    "shared_subscription_available": bits,
    "user": st.lists(st.tuples(texts, texts), min_size=1, max_size=3).map(tuple),
}
_IDENTIFIERS: st.SearchStrategy[tuple[int, ...]] = st.lists(
    st.integers(1, 268_435_455), min_size=1, max_size=3
).map(tuple)


@st.composite
def properties(
    draw: st.DrawFn, holder: str, version: Version, *, leave_out: Sequence[str] = ()
) -> PacketProperties:
    """What a packet of this kind may carry; nothing in 3.1.1."""
    if version is Version.V311:
        return NO_PROPERTIES
    names = [row.name for row in PROPERTIES if holder in row.holders.split() and row.name not in leave_out]
    chosen = draw(st.lists(st.sampled_from(names), unique=True, max_size=4)) if names else []
    values: dict[str, Any] = {}
    for name in chosen:
        if name == "subscription_ids":
            values[name] = draw(_IDENTIFIERS)[: 1 if holder == "SUBSCRIBE" else 3]
        else:
            values[name] = draw(_VALUES[name])
    if "authentication_data" in values or holder == "AUTH":
        values["authentication_method"] = draw(texts)
    return PacketProperties(**values)


def reasons(holder: str, version: Version) -> st.SearchStrategy[int]:
    """The reason codes that the standard gives this packet."""
    return st.sampled_from([int(code, 16) for code in REASONS[holder, version][2].split()])


@st.composite
def wills(draw: st.DrawFn, version: Version) -> Will:
    extras = draw(properties("WILL", version))
    return Will(draw(topics), draw(blobs), draw(qos_levels), draw(st.booleans()), extras)


@st.composite
def connects(draw: st.DrawFn, version: Version) -> Connect:
    user_name = draw(st.none() | texts)
    has_password = version is Version.V5 or user_name is not None
    return Connect(
        draw(texts),
        version,
        draw(st.booleans()),
        draw(shorts),
        user_name,
        draw(st.none() | blobs) if has_password else None,
        draw(st.none() | wills(version)),
        draw(properties("CONNECT", version)),
    )


@st.composite
def connacks(draw: st.DrawFn, version: Version) -> ConnAck:
    reason = draw(reasons("CONNACK", version))
    is_present = draw(st.booleans()) and not reason
    return ConnAck(is_present, reason, draw(properties("CONNACK", version)))


@st.composite
def publishes(draw: st.DrawFn, version: Version, *, leave_out: Sequence[str] = ()) -> Publish:
    qos = draw(qos_levels)
    return Publish(
        draw(topics),
        draw(blobs | st.just(b"x" * 200)),
        qos,
        draw(st.booleans()),
        draw(st.booleans()) if qos else False,
        draw(packet_ids) if qos else 0,
        draw(properties("PUBLISH", version, leave_out=leave_out)),
    )


@st.composite
def replies(draw: st.DrawFn, kind: type[Reply], version: Version) -> Reply:
    packet_id = draw(packet_ids)
    if version is Version.V311:
        return kind(packet_id)
    holder = kind.__name__.upper()
    return kind(packet_id, draw(reasons(holder, version)), draw(properties(holder, version)))


@st.composite
def requests(draw: st.DrawFn, version: Version) -> Request:
    wanted = draw(filters)
    if version is Version.V311:
        return Request(wanted, draw(qos_levels))
    no_local = draw(st.booleans()) and not wanted.startswith("$share/")
    return Request(wanted, draw(qos_levels), no_local, draw(st.booleans()), draw(st.integers(0, 2)))


@st.composite
def subscribes(draw: st.DrawFn, version: Version) -> Subscribe:
    wanted = draw(st.lists(requests(version), min_size=1, max_size=3))
    return Subscribe(draw(packet_ids), tuple(wanted), draw(properties("SUBSCRIBE", version)))


@st.composite
def subacks(draw: st.DrawFn, version: Version) -> SubAck:
    codes = draw(st.lists(reasons("SUBACK", version), min_size=1, max_size=4))
    return SubAck(draw(packet_ids), tuple(codes), draw(properties("SUBACK", version)))


@st.composite
def unsubscribes(draw: st.DrawFn, version: Version) -> Unsubscribe:
    names = draw(st.lists(filters, min_size=1, max_size=3))
    return Unsubscribe(draw(packet_ids), tuple(names), draw(properties("UNSUBSCRIBE", version)))


@st.composite
def unsubacks(draw: st.DrawFn, version: Version) -> UnsubAck:
    if version is Version.V311:
        return UnsubAck(draw(packet_ids))
    codes = draw(st.lists(reasons("UNSUBACK", version), min_size=1, max_size=4))
    return UnsubAck(draw(packet_ids), tuple(codes), draw(properties("UNSUBACK", version)))


@st.composite
def disconnects(draw: st.DrawFn, version: Version) -> Disconnect:
    if version is Version.V311:
        return Disconnect()
    return Disconnect(draw(reasons("DISCONNECT", version)), draw(properties("DISCONNECT", version)))


@st.composite
def auths(draw: st.DrawFn) -> Auth:
    full = st.builds(Auth, reasons("AUTH", Version.V5), properties("AUTH", Version.V5))
    return draw(st.just(Auth()) | full)


def packets_of(kind: type[Packet], version: Version) -> st.SearchStrategy[Packet]:
    """Packets of one type."""
    if issubclass(kind, Reply):
        return replies(kind, version)
    return {
        Connect: connects(version),
        ConnAck: connacks(version),
        Publish: publishes(version),
        Subscribe: subscribes(version),
        SubAck: subacks(version),
        Unsubscribe: unsubscribes(version),
        UnsubAck: unsubacks(version),
        PingReq: st.just(PingReq()),
        PingResp: st.just(PingResp()),
        Disconnect: disconnects(version),
        Auth: auths(),
    }[kind]


KINDS_311: tuple[type[Packet], ...] = (
    Connect,
    ConnAck,
    Publish,
    PubAck,
    PubRec,
    PubRel,
    PubComp,
    Subscribe,
    SubAck,
    Unsubscribe,
    UnsubAck,
    PingReq,
    PingResp,
    Disconnect,
)
KINDS: dict[Version, tuple[type[Packet], ...]] = {Version.V311: KINDS_311, Version.V5: (*KINDS_311, Auth)}


def packets(version: Version) -> st.SearchStrategy[Packet]:
    """Any packet but CONNECT, which may change how the rest is read."""
    return st.one_of(*(packets_of(kind, version) for kind in KINDS[version] if kind is not Connect))


@st.composite
def conversations(draw: st.DrawFn) -> tuple[Version, list[Packet]]:
    """A CONNECT and what a client sends after it, as far as no topic alias is needed."""
    version = draw(versions)
    foreign = ("topic_alias", "subscription_ids")
    others = st.one_of(
        publishes(version, leave_out=foreign),
        replies(PubAck, version),
        replies(PubRel, version),
        subscribes(version),
        unsubscribes(version),
        st.just(PingReq()),
    )
    return version, [draw(connects(version)), *draw(st.lists(others, max_size=6))]


def encode_all(packets: Sequence[Packet], version: Version) -> bytes:
    """The packets as one stream."""
    return b"".join(encode_packet(packet, version) for packet in packets)


@st.composite
def cuts(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """The same bytes in pieces; some of them may be empty."""
    places = sorted(draw(st.lists(st.integers(0, len(data)), max_size=12)))
    return [data[start:stop] for start, stop in zip([0, *places], [*places, len(data)], strict=True)]
