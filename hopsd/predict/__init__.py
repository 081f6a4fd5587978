"""Predicts when jobs start and end, as distributions, from what is known of them now."""
