"""The verbs of the command line, one module each.

A module's top level imports only what its argument parser needs: `--help` must be quick, so whatever does the work
is imported by the function that does it.
"""
