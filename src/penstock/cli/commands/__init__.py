"""Sub-commands of `penstock`, one module each."""
