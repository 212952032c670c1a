"""Pages and pictures of an exhibit, of a run and of a study; nothing here asks a model."""
