"""Trials: scenarios without a load generator, about the log and about servers that stop and return."""
