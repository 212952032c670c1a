"""Serving: runs behind HTTP, with sentences that join and leave a search as it decodes."""
