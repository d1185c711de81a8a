"""The engines: null, and one file per vendor."""
