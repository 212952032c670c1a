"""Pages and pictures of an exhibit, of a run and of a study; nothing in this package runs a model."""
