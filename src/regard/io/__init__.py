"""Reading lines and writing results: text files and pipes, n-best lists and JSON, Pharaoh format, progress bars."""
