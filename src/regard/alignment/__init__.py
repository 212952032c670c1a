"""Word alignments read off attention weights: which head to read, and what its weights say."""
