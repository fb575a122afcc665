"""`SidecarService`: the service of NexusD daemons."""
