"""REST endpoints of the web door: publish, stage, topics, messages, retained values, log, holds."""
