"""Opening a data directory: lock or read-only access, salvage of a damaged database, survey of the log."""
