"""Additive scores: v·tanh(Wq + Uk + b)."""
