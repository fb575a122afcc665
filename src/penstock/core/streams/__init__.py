"""Streams: topics whose messages are handed to one receiver each. `engine.py` is their face."""
