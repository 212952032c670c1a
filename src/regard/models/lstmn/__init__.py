"""The LSTMN: an LSTM that attends to all its states."""
