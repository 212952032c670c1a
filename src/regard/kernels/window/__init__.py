"""Local attention: only the keys inside each query's window are touched."""
