"""Comparisons of parax with its peers, run from the repository's root as `python -m benchmarks.NAME`."""
