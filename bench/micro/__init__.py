"""Micro-benchmarks of single mechanisms, in one process and without sockets."""
