"""Passes that write a schedule into a graph; the search for it is the planner's."""
