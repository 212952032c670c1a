"""Word links beside the pairs of a corpus."""
