"""Streams: send and receive over HTTP, where those who receive compete for each message."""
