"""Core's errors and endings in MQTT's words: the one table of this door."""

from typing import TypeVar

from msgspec.structs import replace

from penstock.core.sessions.session import Ending
from penstock.errors import (
    BadCredentials,
    ClientIdTaken,
    InvalidFilter,
    InvalidPayload,
    InvalidTopic,
    NotAuthorized,
    PenstockError,
    QuotaExceeded,
    ShuttingDown,
    StorageUnavailable,
    TooLarge,
)
from penstock.wire.mqtt.encode import encode_packet
from penstock.wire.mqtt.packets import Auth, ConnAck, Disconnect, Reply, SubAck, UnsubAck, Version
from penstock.wire.mqtt.properties import PacketProperties
from penstock.wire.mqtt.reasons import ReasonCode, ReturnCode

ResponsePacket = Auth | ConnAck | Disconnect | Reply | SubAck | UnsubAck
"""A packet that can say in words why."""
AnyResponse = TypeVar("AnyResponse", bound=ResponsePacket)
WORDS_LIMIT = 256
"""Characters of a reason string; what a client sent may be part of it."""

REASONS: dict[str, ReasonCode] = {
    PenstockError.code: ReasonCode.UNSPECIFIED_ERROR,
    InvalidTopic.code: ReasonCode.TOPIC_NAME_INVALID,
    InvalidFilter.code: ReasonCode.TOPIC_FILTER_INVALID,
    BadCredentials.code: ReasonCode.BAD_USER_NAME_OR_PASSWORD,
    NotAuthorized.code: ReasonCode.NOT_AUTHORIZED,
    ClientIdTaken.code: ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
    InvalidPayload.code: ReasonCode.PAYLOAD_FORMAT_INVALID,
    TooLarge.code: ReasonCode.PACKET_TOO_LARGE,
    QuotaExceeded.code: ReasonCode.QUOTA_EXCEEDED,
    StorageUnavailable.code: ReasonCode.QUOTA_EXCEEDED,
    ShuttingDown.code: ReasonCode.SERVER_SHUTTING_DOWN,
}
"""MQTT 5 reason code by error code."""

ENDING = frozenset({TooLarge.code, ShuttingDown.code})
"""Errors without a reason code for acknowledgements: the connection ends instead."""

NOT_OF_THIS_DOOR = frozenset(
    {
        "invalid-cursor",
        "invalid-hold",
        "unknown-hold",
        "invalid-request",
        "unsupported-media",
        "not-acceptable",
        "unknown-topic",
        "unknown-client",
        "unknown-stage",
        "conflict",
        "wait-timeout",
        "no-log",
        "invalid-config",
        "malformed",
    }
)
"""Codes that never reach a client: they are about what other doors offer, and wire errors have reasons."""

ENDINGS: dict[Ending, ReasonCode] = {
    Ending.TAKEN_OVER: ReasonCode.SESSION_TAKEN_OVER,
    Ending.SLOW: ReasonCode.QUOTA_EXCEEDED,
    Ending.UNSTORED: ReasonCode.QUOTA_EXCEEDED,
    Ending.UNKNOWN: ReasonCode.NOT_AUTHORIZED,
    Ending.ADMINISTRATIVE: ReasonCode.ADMINISTRATIVE_ACTION,
    Ending.SESSION_ENDED: ReasonCode.ADMINISTRATIVE_ACTION,
    Ending.SHUTTING_DOWN: ReasonCode.SERVER_SHUTTING_DOWN,
}
"""Why a connection ends, for the DISCONNECT of MQTT 5."""

RETURN_CODES: dict[ReasonCode, ReturnCode] = {
    ReasonCode.UNSUPPORTED_PROTOCOL_VERSION: ReturnCode.UNACCEPTABLE_PROTOCOL_VERSION,
    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID: ReturnCode.IDENTIFIER_REJECTED,
    ReasonCode.BAD_USER_NAME_OR_PASSWORD: ReturnCode.BAD_USER_NAME_OR_PASSWORD,
    ReasonCode.NOT_AUTHORIZED: ReturnCode.NOT_AUTHORIZED,
    ReasonCode.BAD_AUTHENTICATION_METHOD: ReturnCode.NOT_AUTHORIZED,
    ReasonCode.SERVER_UNAVAILABLE: ReturnCode.SERVER_UNAVAILABLE,
    ReasonCode.SERVER_BUSY: ReturnCode.SERVER_UNAVAILABLE,
    ReasonCode.QUOTA_EXCEEDED: ReturnCode.SERVER_UNAVAILABLE,
    ReasonCode.CONNECTION_RATE_EXCEEDED: ReturnCode.SERVER_UNAVAILABLE,
    ReasonCode.UNSPECIFIED_ERROR: ReturnCode.SERVER_UNAVAILABLE,
}
"""3.1.1 return code by reason; other reasons close without CONNACK (MQTT-3.2.2-6)."""

SUBACK_FAILURE = 0x80
"""All that a 3.1.1 SUBACK can say of a filter that was not granted."""


def ends_connection(error: PenstockError, version: Version) -> bool:
    """True if a publish that failed like this ends its connection.

    MQTT 3.1.1 cannot say "later": only without an acknowledgement does the client keep the message.
    """
    return error.code in ENDING or (error.retryable and version is Version.V311)


def reason_of(error: PenstockError) -> ReasonCode:
    """The MQTT 5 reason for an error."""
    return REASONS.get(error.code, ReasonCode.UNSPECIFIED_ERROR)


def refusal_of(error: PenstockError) -> ReasonCode:
    """Return the reason code for a CONNACK, which has its own for a server that is shutting down."""
    reason = reason_of(error)
    return ReasonCode.SERVER_UNAVAILABLE if reason is ReasonCode.SERVER_SHUTTING_DOWN else reason


def in_words(packet: AnyResponse, words: str) -> AnyResponse:
    """The same packet with a reason string."""
    words = words if len(words) <= WORDS_LIMIT else f"{words[: WORDS_LIMIT - 1]}…"
    return replace(packet, properties=replace(packet.properties, reason_string=words or None))


def encode_within(packet: ResponsePacket, version: Version, limit_bytes: int) -> bytes | None:
    """The packet as bytes, without its words if the client takes no more; None if it takes not even that.

    MQTT-3.2.2-19, -20, MQTT-3.4.2-2, -3 and the like for every packet that has them.
    """
    data = encode_packet(packet, version)
    if limit_bytes and len(data) > limit_bytes:
        bare: PacketProperties = replace(packet.properties, reason_string=None, user=())
        data = encode_packet(replace(packet, properties=bare), version)
        return data if len(data) <= limit_bytes else None
    return data
