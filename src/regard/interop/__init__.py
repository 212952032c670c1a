"""Models in and out: runs made from other toolkits' folders, folders that they open, and a run in one file."""
