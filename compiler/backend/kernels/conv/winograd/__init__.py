"""Winograd's minimal filtering for convolutions of few taps."""
