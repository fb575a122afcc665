"""NexusD's Python client, for NexusD daemons and for Penstock.

A program written for `nexusd_client` changes only its import:

>>> from penstock.compat.nexusd_client import NexusdClient, ReconnectionPolicy, GapRecoveryMode

Names and defaults follow NexusD's documentation; where its code uses other names, both work.
"""

from penstock.compat.nexusd_client.aio import AsyncNexusdClient, AsyncSubscription
from penstock.compat.nexusd_client.sync import NexusdClient, Subscription
from penstock.compat.nexusd_client.types import (
    ConnectionError,
    GapRecoveryMode,
    Message,
    NexusdError,
    PeerInfo,
    PublishError,
    PublishResult,
    ReconnectConfig,
    ReconnectionPolicy,
    ReconnectionState,
    SubscribeError,
    SubscriptionInfo,
    TopicInfo,
    UnsubscribeError,
)

__all__ = [
    "AsyncNexusdClient",
    "AsyncSubscription",
    "ConnectionError",
    "GapRecoveryMode",
    "Message",
    "NexusdClient",
    "NexusdError",
    "PeerInfo",
    "PublishError",
    "PublishResult",
    "ReconnectConfig",
    "ReconnectionPolicy",
    "ReconnectionState",
    "SubscribeError",
    "Subscription",
    "SubscriptionInfo",
    "TopicInfo",
    "UnsubscribeError",
]
