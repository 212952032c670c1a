"""Training: a plain loop that knows only a Task, with checkpoints that survive interruptions."""
