"""The log and the state on disk: one RocksDB, one atomic commit for everything of a moment.

Rows are committed first and sealed to Arrow in the background. Nothing here is imported unless there is a
data directory.
"""
