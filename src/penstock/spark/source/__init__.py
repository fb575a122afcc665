"""Read side of the connector: plans a read over log and lake, and reads its parts in Spark tasks."""
