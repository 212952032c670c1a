"""Training: a plain loop that knows only a Task, and what makes a run safe."""
