"""Penstock's own service: batches in, many messages in each event out, and nothing missing silently."""
