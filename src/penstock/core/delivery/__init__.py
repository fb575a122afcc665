"""Delivery: fan-out, queues, drain, in-flight windows, backpressure."""
