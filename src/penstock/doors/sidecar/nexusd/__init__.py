"""The service of NexusD: publish, subscribe, resume, topics."""
