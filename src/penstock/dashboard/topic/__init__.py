"""The parts of the page of one topic: finding it, its figures, its messages and its retained value."""
