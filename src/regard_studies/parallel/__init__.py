"""A study of the cost of a layer, and of the quality that it gains."""
