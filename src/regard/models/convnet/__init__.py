"""An image classifier with self-attention over its grid."""
