"""The end of a sentence, predicted with and without positions."""
