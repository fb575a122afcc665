"""Diagnostics: ledger of losses, statistics, slow consumers, why."""
