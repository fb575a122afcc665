"""Penstock's public client API: what an application imports.

What needs gRPC is loaded when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
from penstock.client.cursors import CursorFile
from penstock.client.errors import (
    ConnectionLost,
    ConnectionRefused,
    HttpRefused,
    NoAnswer,
    RequestRefused,
    UnknownService,
)
from penstock.client.http import HttpClient
from penstock.client.log import LogRead
from penstock.client.mqtt import Messages, MqttClient, PacketStream
from penstock.client.reconnection import Reconnection
from penstock.client.values import (
    ClientState,
    Explanation,
    GapNotice,
    LedgerRow,
    Outgoing,
    Peer,
    PublishedMessage,
    PublishReceipt,
    PublishRefusal,
    PublishSummary,
    ReceivedMessage,
    ReceivedRun,
    WaitingMessage,
)
from penstock.wire.mqtt.packets import Publish, Request, Version, Will
from penstock.wire.mqtt.properties import PacketProperties
from penstock.wire.mqtt.reasons import ReasonCode

if TYPE_CHECKING:
    from penstock.client.aio import Client, connect
    from penstock.client.channels import Tls
    from penstock.client.subscription import Subscription
    from penstock.client.sync import SyncClient, SyncSubscription, connect_sync

_LOADED_LATER = {
    "Client": "aio",
    "Subscription": "subscription",
    "SyncClient": "sync",
    "SyncSubscription": "sync",
    "Tls": "channels",
    "connect": "aio",
    "connect_sync": "sync",
}

__all__ = [
    "Client",
    "ClientState",
    "ConnectionLost",
    "ConnectionRefused",
    "CursorFile",
    "Explanation",
    "Gap",
    "GapNotice",
    "History",
    "Hold",
    "HttpClient",
    "HttpRefused",
    "LedgerRow",
    "LogPosition",
    "LogRange",
    "LogRanges",
    "LogRead",
    "Message",
    "Messages",
    "Missing",
    "MqttClient",
    "NewMessage",
    "NoAnswer",
    "Outgoing",
    "PacketProperties",
    "PacketStream",
    "Peer",
    "Publish",
    "PublishReceipt",
    "PublishRefusal",
    "PublishSummary",
    "PublishedMessage",
    "ReasonCode",
    "Receipt",
    "ReceivedMessage",
    "ReceivedRun",
    "Reconnection",
    "Request",
    "RequestRefused",
    "StageCommit",
    "StagedPart",
    "Statement",
    "Subscription",
    "SyncClient",
    "SyncSubscription",
    "Tls",
    "UnknownService",
    "Version",
    "WaitingMessage",
    "Will",
    "connect",
    "connect_sync",
]


def __getattr__(name: str) -> Any:
    if name in _LOADED_LATER:
        return getattr(import_module(f"{__name__}.{_LOADED_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
