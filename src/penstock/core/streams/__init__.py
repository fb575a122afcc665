"""Streams: competing receivers on a topic."""
