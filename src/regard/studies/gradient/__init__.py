"""How far back a gradient reaches."""
