"""A stack of blocks as a text classifier or a language model."""
