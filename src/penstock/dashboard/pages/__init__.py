"""One page of the dashboard each: `show()` draws it, and `live` parts of it are drawn anew each second."""
