"""Self-attention and the grammar of a sentence."""
