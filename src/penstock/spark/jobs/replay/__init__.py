"""Replay: `penstock pipeline replay` publishes messages of the lake and the log again."""

from penstock.spark.jobs.replay.job import has_work, replay
from penstock.spark.jobs.replay.options import PREFIX, ReplayOptions

__all__ = ["PREFIX", "ReplayOptions", "has_work", "replay"]
