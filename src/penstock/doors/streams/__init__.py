"""Streams: send and receive over HTTP; receivers compete for each message."""
