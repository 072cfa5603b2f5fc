"""Data moved, gathered, scattered, made from coordinates, or resampled."""
