"""Descriptions of machines that come with parax, one TOML file each; see targets/machine.py."""
