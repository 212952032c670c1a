"""Luong's table of scores and windows."""
