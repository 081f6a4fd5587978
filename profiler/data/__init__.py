"""The same training on any number of GPUs, by an order of samples that does not depend on it."""
