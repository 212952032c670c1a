"""Layers that several kinds of model share."""
