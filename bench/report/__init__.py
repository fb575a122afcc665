"""Report of a bench: the machine, medians and ratios, tables."""
