"""A study of how many heads are enough."""
