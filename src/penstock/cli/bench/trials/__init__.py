"""What is measured without the load generator: the log itself, and servers that stop and come back."""
