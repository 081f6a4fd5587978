"""Puts hops in place on a controller, step by step, and takes it back."""
