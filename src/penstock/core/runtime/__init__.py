"""Clock, tick, timeouts and background work on one event loop."""
