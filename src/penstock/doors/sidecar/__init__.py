"""The sidecar door: gRPC for NexusD's clients, and Penstock's own calls beside it."""
