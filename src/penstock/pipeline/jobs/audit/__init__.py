"""The audit of a lake: is every captured message in it, exactly once?"""

from penstock.pipeline.jobs.audit.job import Stopped, audit, look_first
from penstock.pipeline.jobs.audit.options import AuditOptions, audit_options

__all__ = ["AuditOptions", "Stopped", "audit", "audit_options", "look_first"]
