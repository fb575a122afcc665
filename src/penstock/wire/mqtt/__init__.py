"""MQTT 3.1.1 and 5.0 as bytes and values; no socket, loop or clock.

`PacketReader` and `RunReader` take bytes in, `encode_packet` gives bytes out. Frames for many
subscribers at once are made in `frames`, which only a server needs.
"""

from penstock.wire.mqtt.ack_runs import AckRun
from penstock.wire.mqtt.decode import TopicNameCache
from penstock.wire.mqtt.encode import PINGREQ, PINGRESP, encode_packet
from penstock.wire.mqtt.packets import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PacketType,
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
)
from penstock.wire.mqtt.properties import NO_PROPERTIES, PacketProperties
from penstock.wire.mqtt.reader import PacketReader
from penstock.wire.mqtt.reasons import (
    InvalidClientId,
    InvalidPayloadFormat,
    InvalidTopicAlias,
    InvalidTopicName,
    MalformedPacket,
    MqttWireError,
    PacketTooLarge,
    ProtocolViolation,
    QosNotSupported,
    ReasonCode,
    RetainNotSupported,
    ReturnCode,
    UnsupportedVersion,
)
from penstock.wire.mqtt.run_reader import RunReader

__all__ = [
    "NO_PROPERTIES",
    "PINGREQ",
    "PINGRESP",
    "AckRun",
    "Auth",
    "ConnAck",
    "Connect",
    "Disconnect",
    "InvalidClientId",
    "InvalidPayloadFormat",
    "InvalidTopicAlias",
    "InvalidTopicName",
    "MalformedPacket",
    "MqttWireError",
    "Packet",
    "PacketProperties",
    "PacketReader",
    "PacketTooLarge",
    "PacketType",
    "PingReq",
    "PingResp",
    "ProtocolViolation",
    "PubAck",
    "PubComp",
    "PubRec",
    "PubRel",
    "Publish",
    "QosNotSupported",
    "ReasonCode",
    "Reply",
    "Request",
    "RetainNotSupported",
    "ReturnCode",
    "RunReader",
    "SubAck",
    "Subscribe",
    "TopicNameCache",
    "UnsubAck",
    "Unsubscribe",
    "UnsupportedVersion",
    "Version",
    "Will",
    "encode_packet",
]
