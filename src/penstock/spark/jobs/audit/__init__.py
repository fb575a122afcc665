"""Audit: `penstock pipeline audit` proves that a lake has every captured message exactly once."""

from penstock.spark.jobs.audit.job import AuditOptions, Stopped, audit, audit_options, preflight

__all__ = ["AuditOptions", "Stopped", "audit", "audit_options", "preflight"]
