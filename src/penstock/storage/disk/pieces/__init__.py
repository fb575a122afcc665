"""Pieces of the log: frames of committed rows, sealed Arrow batches, and the index of both."""
