"""NexusD's Python client, for NexusD daemons and for Penstock.

A program that was written for `nexusd_client` changes its import:

>>> from penstock.compat.nexusd_client import NexusdClient, ReconnectionPolicy, GapRecoveryMode

Names and defaults are those of NexusD's documents; the names of its code, where they differ, are there too.
"""

from penstock.compat.nexusd_client.aio import AsyncNexusdClient, AsyncSubscription
from penstock.compat.nexusd_client.errors import (
    ConnectionError,
    NexusdError,
    PublishError,
    SubscribeError,
    UnsubscribeError,
)
from penstock.compat.nexusd_client.policy import ReconnectConfig, ReconnectionPolicy
from penstock.compat.nexusd_client.sync import NexusdClient, Subscription
from penstock.compat.nexusd_client.values import (
    GapRecoveryMode,
    Message,
    PeerInfo,
    PublishResult,
    ReconnectionState,
    SubscriptionInfo,
    TopicInfo,
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
