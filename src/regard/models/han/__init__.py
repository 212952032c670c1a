"""Hierarchical attention networks: documents to labels."""
