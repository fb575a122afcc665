"""Listeners, TLS, limits, HTTP and WebSocket: networking that no door owns."""
