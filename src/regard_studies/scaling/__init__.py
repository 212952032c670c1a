"""A study of why dot products are divided by the root of their width."""
