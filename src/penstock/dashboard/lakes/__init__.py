"""What a lake holds, how far it is behind the log, and what insights and audits say of it.

Manifests and Parquet files are read by `penstock.pipeline.lake`; no Spark is needed.
"""
