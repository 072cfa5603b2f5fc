"""Convolutions: which algorithm takes a layer, and the algorithms."""
