"""Micro-kernels: the register tiles at the bottom of every matrix product, as data (`table`)."""
