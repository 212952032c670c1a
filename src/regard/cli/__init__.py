"""The command line: `main`, one file a command in `commands/`, and what several commands share."""
