"""Benchmarks, from a checkout."""
