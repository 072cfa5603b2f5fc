"""The public face of parax. Owns the public names; knows nothing of how they work."""

__version__ = "0.1.0"
