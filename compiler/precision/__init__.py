"""Lower precision under two gates: it is taken where the accuracy stays within a budget and where it is faster.

Owns calibration, metrics, the search for the layers that stay in f32, and the measuring that decides.
"""
