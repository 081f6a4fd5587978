"""Policies on several works, seed by seed, with one condition changed at a time."""
