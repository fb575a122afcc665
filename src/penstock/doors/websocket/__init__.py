"""Bytes over WebSocket: what any door can speak through instead of a bare socket; belongs to none.

A listener makes an `Entrance`, which shakes hands and then puts a `WebSocketTransport` between the socket and
the door's own protocol. Both need the `websockets` package, so settings need not load them.
"""

from penstock.doors.websocket.settings import WebSocketSettings

__all__ = ["WebSocketSettings"]
