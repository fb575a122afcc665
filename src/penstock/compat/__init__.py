"""Clients of other systems, by their own names: what was written for them runs with another import."""
