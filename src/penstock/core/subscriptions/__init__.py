"""Subscriptions: filter index, audiences, shared groups."""
