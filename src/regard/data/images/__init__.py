"""Pictures: files of captions, decoded pixels in a cache, batches."""
