"""Policies on several workloads, seed by seed, with one condition changed at a time."""
