"""The commands: NAME.py has the function NAME, which is the subcommand NAME."""
