"""Columns of the log in Arrow, and the key of the statement in its metadata."""

LOG_COLUMNS = (
    "offset",
    "topic",
    "sequence",
    "epoch",
    "published_at",
    "expires_at",
    "qos",
    "retain",
    "payload",
    "content_type",
    "correlation_id",
    "message_id",
    "client_id",
    "node_id",
    "door",
    "properties",
    "logged_at",
)
"""Columns of the log in Arrow, in their order."""

STATEMENT_KEY = "penstock.statement"
"""Metadata key of the statement that ends an Arrow stream."""
