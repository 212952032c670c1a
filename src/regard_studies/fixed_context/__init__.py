"""A fixed context and long sentences."""
