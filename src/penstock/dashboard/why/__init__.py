"""The parts of the page that says why: a question with its answer, and records of what was not delivered."""
