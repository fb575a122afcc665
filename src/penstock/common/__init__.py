"""Values and rules that both sides of the wire share: server, clients, Spark and dashboard."""
