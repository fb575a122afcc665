"""Message classes of the gRPC services, made of compiled `.proto` files."""
