"""The recurrent encoder-decoder with a fixed context."""
