"""What makes attention see order."""
