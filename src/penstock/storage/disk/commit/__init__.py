"""Group commit: many turns of the loop in one atomic write, and the mark of what is durable."""
