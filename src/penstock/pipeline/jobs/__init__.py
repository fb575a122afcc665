"""What `penstock pipeline` runs: each job takes its options, a Spark session and ears, and gives a report."""

from penstock.pipeline.jobs.report import Report
from penstock.pipeline.jobs.running import Job, Progress

__all__ = ["Job", "Progress", "Report"]
