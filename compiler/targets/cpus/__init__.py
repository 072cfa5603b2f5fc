"""Described CPUs, a TOML file each: see `core`."""
