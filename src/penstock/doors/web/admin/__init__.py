"""Operating endpoints: clients, slow consumers, drops, why, configuration, metrics, health."""
