"""Reads of the log, from any thread: runs, single messages, Arrow streams, topic names."""
