"""Reductions, softmax, normalisations and the like: operators over lines of a tensor."""
