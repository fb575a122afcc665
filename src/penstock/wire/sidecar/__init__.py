"""Messages of the gRPC services, and their encoding."""
