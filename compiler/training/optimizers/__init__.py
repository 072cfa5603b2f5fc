"""Optimisers: how a gradient changes a parameter, written as graph operators on flat vectors."""
