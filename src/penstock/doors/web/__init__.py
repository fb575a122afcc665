"""The web door: publish, history, why, the log, metrics and health over HTTP."""
