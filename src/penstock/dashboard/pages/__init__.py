"""Pages of the dashboard: `show()` of each module draws its page."""
