"""Evaluation: scores that others can reproduce."""
