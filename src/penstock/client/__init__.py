"""Penstock's public client API: what an application imports."""

from penstock.client.answers import (
    Gap,
    History,
    Hold,
    LogPosition,
    LogRange,
    LogRanges,
    Message,
    Missing,
    NewMessage,
    Receipt,
    StageCommit,
    StagedPart,
    Statement,
)
from penstock.client.errors import ConnectionLost, ConnectionRefused, HttpRefused, RequestRefused
from penstock.client.http import HttpClient
from penstock.client.log import LogRead
from penstock.client.mqtt import Messages, MqttClient, PacketStream
from penstock.wire.mqtt.packets import Publish, Request, Version, Will
from penstock.wire.mqtt.properties import PacketProperties
from penstock.wire.mqtt.reasons import ReasonCode

__all__ = [
    "ConnectionLost",
    "ConnectionRefused",
    "Gap",
    "History",
    "Hold",
    "HttpClient",
    "HttpRefused",
    "LogPosition",
    "LogRange",
    "LogRanges",
    "LogRead",
    "Message",
    "Messages",
    "Missing",
    "MqttClient",
    "NewMessage",
    "PacketProperties",
    "PacketStream",
    "Publish",
    "ReasonCode",
    "Receipt",
    "Request",
    "RequestRefused",
    "StageCommit",
    "StagedPart",
    "Statement",
    "Version",
    "Will",
]
