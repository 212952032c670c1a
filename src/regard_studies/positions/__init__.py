"""A study of what makes attention see order."""
