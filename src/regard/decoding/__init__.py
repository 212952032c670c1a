"""Decoding: one search for every model."""
