"""Exchange: models of other toolkits as runs, runs in other formats, and a run in one file."""
