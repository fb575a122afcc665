"""Cluster: topics and clients placed on shards, and the links between shards.

Everything here is pure: time, randomness and messages are handed in. A server with one shard imports none
of it.
"""
