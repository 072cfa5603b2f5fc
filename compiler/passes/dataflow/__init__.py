"""Passes that look at the whole graph."""
