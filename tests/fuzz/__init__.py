"""A fuzzer of the whole compiler: random models, compared over all ways to run them with other implementations."""
