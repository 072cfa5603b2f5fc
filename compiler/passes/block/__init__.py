"""Passes that look at a small pattern of neighbouring nodes."""
