"""The demonstration: a Transformer trained from nothing on the phrasebook, and what it looks at."""
