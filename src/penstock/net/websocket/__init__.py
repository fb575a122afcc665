"""WebSocket for any door: a stream of bytes instead of a TCP socket, or messages.

An `ByteEntrance` does the handshake and puts a `ByteSocket` between the socket and the door's
protocol; a `MessageEntrance` puts a `MessageSocket` there. Both need the package `websockets`, so settings
do not load them.
"""

from penstock.net.websocket.settings import WebSocketSettings

__all__ = ["WebSocketSettings"]
