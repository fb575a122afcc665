"""Brokers under test: how each is started, stopped and addressed."""
