"""gRPC transport: connections, calls, methods, metadata and status, on HTTP/2."""
