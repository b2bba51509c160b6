"""Timings of original and fused models. Never run by the tests: figures belong to a machine."""
