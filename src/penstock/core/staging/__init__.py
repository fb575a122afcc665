"""Staged publishing: parts become visible with one commit."""
