"""Where a sentence ends, with and without positions."""
