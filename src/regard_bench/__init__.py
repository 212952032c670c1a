"""Benchmarks: Regard beside its peers, in one run, on the same inputs; no speed-up is said where results differ."""
