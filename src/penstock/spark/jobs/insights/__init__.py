"""Insights: `penstock pipeline insights` aggregates the log by windows of 10 s, 1 min and 1 h into lake
tables.
"""

from penstock.spark.jobs.insights.job import InsightsOptions, insights
from penstock.spark.jobs.insights.windows import COLUMNS, cut_into_cells

__all__ = ["COLUMNS", "InsightsOptions", "cut_into_cells", "insights"]
