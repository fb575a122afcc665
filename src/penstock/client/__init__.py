"""Public client API: everything an application imports.

The gRPC client is imported on first use, so that other clients do not load grpcio.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.client.errors import (
    ConnectionLost,
    ConnectionRefused,
    HttpRefused,
    NoAnswer,
    RequestRefused,
    UnknownService,
)
from penstock.client.http import HttpClient, LogRead
from penstock.client.messages import (
    ClientState,
    Explanation,
    Gap,
    GapNotice,
    History,
    Hold,
    LedgerRow,
    LogPosition,
    LogRange,
    LogRanges,
    Message,
    Missing,
    NewMessage,
    Outgoing,
    Peer,
    PublishedMessage,
    PublishReceipt,
    PublishRefusal,
    PublishSummary,
    Receipt,
    ReceivedMessage,
    ReceivedRun,
    StageCommit,
    StagedPart,
    Statement,
    WaitingMessage,
)
from penstock.client.mqtt import Messages, MqttClient, PacketStream
from penstock.client.tls import Tls
from penstock.wire.mqtt.packets import Publish, Request, Version, Will
from penstock.wire.mqtt.properties import PacketProperties
from penstock.wire.mqtt.reasons import ReasonCode

if TYPE_CHECKING:
    from penstock.client.grpc.client import Client, connect
    from penstock.client.grpc.connection import Reconnection
    from penstock.client.grpc.cursors import CursorFile, CursorStore
    from penstock.client.grpc.subscription import Subscription
    from penstock.client.grpc.sync import SyncClient, SyncSubscription, connect_sync

_MODULE_BY_LAZY_NAME = {
    "Client": "client",
    "CursorFile": "cursors",
    "CursorStore": "cursors",
    "Reconnection": "connection",
    "Subscription": "subscription",
    "SyncClient": "sync",
    "SyncSubscription": "sync",
    "connect": "client",
    "connect_sync": "sync",
}

__all__ = [
    "Client",
    "ClientState",
    "ConnectionLost",
    "ConnectionRefused",
    "CursorFile",
    "CursorStore",
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
    if name in _MODULE_BY_LAZY_NAME:
        return getattr(import_module(f"{__name__}.grpc.{_MODULE_BY_LAZY_NAME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
