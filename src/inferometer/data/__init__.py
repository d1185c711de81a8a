"""Image sets and their labels, decoding, preprocessing, order and splits, batches, synthetic input."""
