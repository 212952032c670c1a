"""RNNsearch: bidirectional annotations and additive attention."""
