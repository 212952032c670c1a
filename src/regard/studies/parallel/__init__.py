"""A study of what a layer costs, and what that buys."""
