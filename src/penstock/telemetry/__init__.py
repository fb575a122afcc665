"""Renders what core counts: Prometheus text, and JSON in the form of the In-memory Pub/Sub."""
