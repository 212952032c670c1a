"""Pointer networks."""
