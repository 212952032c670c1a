"""Models: every sequence-to-sequence architecture of the lineage, on one contract.

`kinds` lists them with their papers and options and imports no torch; `build` makes one.
"""
