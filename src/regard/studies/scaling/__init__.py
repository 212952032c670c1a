"""Why dot products are divided by the root of their width."""
