"""Lines in, results out: text files and pipes, n-best and JSON forms, the Pharaoh format, progress bars."""
