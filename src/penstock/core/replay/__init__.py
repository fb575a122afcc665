"""Replay: reads from a cursor and the catch-up to live messages."""
