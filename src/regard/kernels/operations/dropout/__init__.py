"""Dropout: numbers set to zero at random in training, the others scaled up (Srivastava et al. 2014)."""

from regard.kernels.operations.dropout.dispatch import dropout, dropout_add, gelu_dropout, relu_dropout, silu_dropout

__all__ = ["dropout_add", "dropout", "gelu_dropout", "relu_dropout", "silu_dropout"]
