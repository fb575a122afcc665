"""The broker: decides what happens to every message. Knows no protocol, socket or file."""
