"""WebSocket for any door: as a stream of bytes instead of a bare socket, or as messages; belongs to none.

A listener makes an `Entrance`, which shakes hands and then puts a `WebSocketTransport` between the socket and
the door's own protocol; or a `MessageEntrance`, which puts a `MessageSocket` there. Both need the package
`websockets`, so settings do not load them; nor do `encoding` and `deflating`, which make frames.
"""

from penstock.doors.websocket.settings import WebSocketSettings

__all__ = ["WebSocketSettings"]
