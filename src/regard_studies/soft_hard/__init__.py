"""Captions by soft and by hard attention."""
