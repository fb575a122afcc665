"""Log and state on disk: one RocksDB database, one atomic commit for both.

Rows are committed first and sealed to Arrow in the background. Nothing here is imported unless there is a
data directory. Packages, top to bottom: recovery | read; commit; pieces; rocksdb.
"""
