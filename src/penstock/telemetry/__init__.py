"""Metrics of the server, as JSON and in Prometheus' formats."""
