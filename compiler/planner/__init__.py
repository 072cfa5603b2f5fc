"""The planner: which instances × cores, mode, rows a call and pipeline stages run a plan best, and why.

It must not know the command line or how plans are stored; the driver asks it, `parax plan` shows what it found.
"""
