"""What a model looked at, collected once: an exhibit, from a run or from a look."""
