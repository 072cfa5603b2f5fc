"""Passes that write a partition into a graph; the search for it is the planner's."""
