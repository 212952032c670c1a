"""The corpora of studies: built in, or real ones in a folder that `--data` names."""
