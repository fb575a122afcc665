"""Log and state store: in memory, or on disk."""
