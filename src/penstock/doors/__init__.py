"""Doors: one package per protocol family, none of which imports another."""
