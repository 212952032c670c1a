"""The demonstration: a Transformer trained from scratch on the phrasebook, and what it looks at."""
