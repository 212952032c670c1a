"""Recurrences with attention in every step, each with a backward pass of its own."""
