"""A study of how far back a gradient reaches."""
