"""Load generators, the meter of what a broker uses meanwhile, and the builder of native programs."""
