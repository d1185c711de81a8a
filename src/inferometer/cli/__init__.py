"""One file per verb; the only place that prints, exits, or sets up logging."""
