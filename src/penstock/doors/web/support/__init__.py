"""Shared parts of the web endpoints: parameters, bodies, paging, responses, failures."""
