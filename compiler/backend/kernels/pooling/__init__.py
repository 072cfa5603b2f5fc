"""Pools over sliding windows."""
