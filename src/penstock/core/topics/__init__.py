"""Topics: registry, rules, last messages, retained values."""
