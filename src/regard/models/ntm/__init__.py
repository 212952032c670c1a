"""The Neural Turing Machine."""
