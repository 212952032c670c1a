"""Bilinear scores: dot, scaled dot, general and cosine are one product of transformed queries and keys."""
