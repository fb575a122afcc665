"""The data pipeline on Spark: topics as tables, a lake that is complete by proof, and jobs on both.

`source` reads the log, and the lake, as a Spark table, `sink` publishes rows exactly once, `lake` keeps
Parquet files behind a manifest, `jobs` are what `penstock pipeline` runs. Everything needs the extra `spark`.
"""
