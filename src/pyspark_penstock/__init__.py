"""Entry point of the Spark format `penstock`; Spark imports modules whose names begin with `pyspark_`."""

from penstock.spark.datasource import PenstockDataSource as DefaultSource

__all__ = ["DefaultSource"]
