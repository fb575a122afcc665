"""A messaging server with one topic space and several front doors."""

__all__ = ["__version__"]

__version__ = "0.1.0"
