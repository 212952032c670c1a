"""The LSTMN: a cell that attends to all its earlier states."""
