"""Audit: `penstock pipeline audit` proves that a lake has every captured message exactly once."""

from penstock.spark.jobs.audit.job import Stopped, audit, preflight
from penstock.spark.jobs.audit.options import AuditOptions, audit_options

__all__ = ["AuditOptions", "Stopped", "audit", "audit_options", "preflight"]
