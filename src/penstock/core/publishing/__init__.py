"""Publishing: admission, stamps, idempotency, outcome."""
