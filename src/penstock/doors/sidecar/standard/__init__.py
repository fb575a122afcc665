"""Standard gRPC services: health checking and reflection."""
