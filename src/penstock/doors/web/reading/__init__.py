"""Reads of the web door: pages of the past, bulk reads, positions, and events as JSON."""
