"""A study: what it needs, its trials and their order, running and resuming it."""
