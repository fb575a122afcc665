"""WebSocket frames and messages (RFC 6455, RFC 7692) as bytes; no socket, loop or clock."""
