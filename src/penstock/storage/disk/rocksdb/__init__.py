"""RocksDB: options, safe calls, the files and keys of a data directory, errors and free space."""
