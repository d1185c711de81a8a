"""Sources of power and energy readings: the sampler process, replay, and one module per source."""
