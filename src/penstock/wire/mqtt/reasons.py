"""Reason codes of MQTT 5, return codes of 3.1.1, and the errors that carry them.

Every `WireError` of this codec knows the reason a server would give for closing, so that a door
needs no table of its own for bad bytes.
"""

from enum import IntEnum

from penstock.errors import WireError


class ReasonCode(IntEnum):
    """MQTT 5 section 2.4. Names follow the specification."""

    SUCCESS = 0x00
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    RE_AUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2


class ReturnCode(IntEnum):
    """Return codes of a 3.1.1 CONNACK (MQTT 3.1.1 section 3.2.2.3)."""

    ACCEPTED = 0
    UNACCEPTABLE_PROTOCOL_VERSION = 1
    IDENTIFIER_REJECTED = 2
    SERVER_UNAVAILABLE = 3
    BAD_USER_NAME_OR_PASSWORD = 4
    NOT_AUTHORIZED = 5


class MqttWireError(WireError):
    """Bytes that break MQTT; `reason` is the code for the peer."""

    reason = ReasonCode.UNSPECIFIED_ERROR


class MalformedPacket(MqttWireError):
    """A packet that cannot be parsed by the rules of its type."""

    reason = ReasonCode.MALFORMED_PACKET


class ProtocolViolation(MqttWireError):
    """A packet that parses, but must not be sent like this or now."""

    reason = ReasonCode.PROTOCOL_ERROR


class UnsupportedVersion(MqttWireError):
    """A protocol name or level other than MQTT 3.1.1 and 5.0."""

    reason = ReasonCode.UNSUPPORTED_PROTOCOL_VERSION


class InvalidClientId(MqttWireError):
    """No client identifier where there has to be one."""

    reason = ReasonCode.CLIENT_IDENTIFIER_NOT_VALID


class PacketTooLarge(MqttWireError):
    """A packet larger than allowed; refused from its header, before its body arrives."""

    reason = ReasonCode.PACKET_TOO_LARGE


class InvalidTopicName(MqttWireError):
    """A topic name with a wildcard, or none at all."""

    reason = ReasonCode.TOPIC_NAME_INVALID


class InvalidTopicAlias(MqttWireError):
    """A topic alias of zero, beyond the maximum, or never defined."""

    reason = ReasonCode.TOPIC_ALIAS_INVALID


class InvalidPayloadFormat(MqttWireError):
    """A payload that is not the text it is said to be."""

    reason = ReasonCode.PAYLOAD_FORMAT_INVALID


class QosNotSupported(MqttWireError):
    """A publish at a higher QoS than was announced."""

    reason = ReasonCode.QOS_NOT_SUPPORTED


class RetainNotSupported(MqttWireError):
    """A publish that is to be retained where nothing is."""

    reason = ReasonCode.RETAIN_NOT_SUPPORTED
