"""Cost of a message: CPU time of the server's own work, in one process and without sockets."""
