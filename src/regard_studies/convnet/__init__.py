"""Self-attention inside a ConvNet."""
