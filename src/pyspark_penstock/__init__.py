"""Where Spark looks for the format `penstock`: it imports every module whose name begins with `pyspark_`."""

from penstock.pipeline.source import PenstockSource as DefaultSource

__all__ = ["DefaultSource"]
