"""The Spark integration beside what Spark itself would do in its place."""
