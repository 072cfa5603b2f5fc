"""Passes that look at one node at a time."""
