"""How many heads are enough."""
