"""Client APIs of other systems, under their own names: programs only change their import."""
