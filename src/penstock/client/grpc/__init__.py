"""gRPC client: reconnecting publish, subscribe and request, asynchronous or blocking."""
