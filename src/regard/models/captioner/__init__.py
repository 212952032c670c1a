"""Show, attend and tell: pictures to sentences."""
