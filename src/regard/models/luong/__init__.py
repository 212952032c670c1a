"""Luong's models: attention after the state, global and local."""
