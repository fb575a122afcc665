"""Jobs of `penstock pipeline`: functions of options, a Spark session and progress that return a report."""

from penstock.spark.jobs.run import Job, Progress, Report

__all__ = ["Job", "Progress", "Report"]
