"""What a layer costs, and what that buys."""
