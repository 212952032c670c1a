"""Collecting what a model looked at: an exhibit, from a run or from a look."""
