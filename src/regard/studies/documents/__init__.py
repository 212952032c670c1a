"""Words and sentences that are weighed, in documents."""
