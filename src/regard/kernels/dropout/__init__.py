"""Dropout: numbers set to zero at random in training, the others scaled up (Srivastava et al. 2014)."""

from regard.kernels.dropout.dispatch import add_dropped, dropout, relu_dropped

__all__ = ["add_dropped", "dropout", "relu_dropped"]
