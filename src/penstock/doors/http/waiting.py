"""What keeps a connection from being read, as bits: Python's flags are slow to reckon with."""

FULL = 1
"""The peer does not read its answers."""
QUEUE = 2
"""Too many requests wait for their answers."""
PASSWORD = 4
"""It is still being checked."""
BODY = 8
"""The application has not taken what has come of it."""

TURN = 16
"""It has had its share of this turn of the loop."""

HIGH_WATER_BYTES = 64 * 1024
"""How much of a body may wait for the application before the rest waits in the client."""
