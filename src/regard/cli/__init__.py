"""The command line: `main`, one file per command in `commands/`, and what several commands share."""
