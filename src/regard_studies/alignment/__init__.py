"""Attention as a word alignment."""
