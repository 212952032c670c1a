"""RNNsearch's decoder: a cell that reads a context at every step."""
