"""The same training on any number of GPUs: an order of samples that the number does not change."""
