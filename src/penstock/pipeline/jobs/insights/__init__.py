"""What goes on in the log, by windows of ten seconds, a minute and an hour, as tables of a lake."""

from penstock.pipeline.jobs.insights.job import insights
from penstock.pipeline.jobs.insights.options import InsightsOptions
from penstock.pipeline.jobs.insights.windows import COLUMNS, cut_into_cells

__all__ = ["COLUMNS", "InsightsOptions", "cut_into_cells", "insights"]
