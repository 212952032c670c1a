"""Documents whose words and sentences are weighed."""
