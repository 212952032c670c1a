"""An LSTM that looks back at its states."""
