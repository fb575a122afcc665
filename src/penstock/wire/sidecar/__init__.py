"""What gRPC clients and the sidecar door say to each other, as messages."""
