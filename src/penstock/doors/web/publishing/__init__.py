"""Publishes of the web door: from request bodies to messages of the broker."""
