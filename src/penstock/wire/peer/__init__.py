"""Peer protocol: messages between shards of a cluster, as bytes and values; no socket, loop or clock.

`FrameReader` takes bytes in and gives messages out, `encode_frame` makes the bytes of a message.
"""

from penstock.wire.peer.frames import FrameReader, encode_frame
from penstock.wire.peer.messages import (
    MAX_RUNS,
    PROTOCOL_VERSION,
    Added,
    Ask,
    Batch,
    Fetch,
    Fetched,
    Follow,
    FollowedFilter,
    Heartbeat,
    Hello,
    MalformedMessage,
    Message,
    Portion,
    Response,
    Seen,
    Settled,
    decode_message,
    encode_message,
)

__all__ = [
    "MAX_RUNS",
    "PROTOCOL_VERSION",
    "Added",
    "Ask",
    "Batch",
    "Fetch",
    "Fetched",
    "Follow",
    "FollowedFilter",
    "FrameReader",
    "Heartbeat",
    "Hello",
    "MalformedMessage",
    "Message",
    "Portion",
    "Response",
    "Seen",
    "Settled",
    "decode_message",
    "encode_frame",
    "encode_message",
]
