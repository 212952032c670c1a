"""Tasks, one file each: their data, objective and metrics; the whole configuration; and starting a run."""
