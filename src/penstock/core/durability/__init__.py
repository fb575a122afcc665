"""Durability: records, recorder, recovery and rollback."""
