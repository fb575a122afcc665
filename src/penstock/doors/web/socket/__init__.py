"""The `/ws` door: JSON messages over WebSocket, as clients of the In-memory Pub/Sub speak them."""
