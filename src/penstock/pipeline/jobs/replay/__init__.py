"""`penstock pipeline replay`: messages of the lake and the log, published once more."""

from penstock.pipeline.jobs.replay.job import replay
from penstock.pipeline.jobs.replay.options import PREFIX, ReplayOptions, parse_place

__all__ = ["PREFIX", "ReplayOptions", "parse_place", "replay"]
