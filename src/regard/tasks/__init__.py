"""Tasks: what is learned. One file a task, the whole configuration, and starting a run."""
