"""Feasible plans: greedy, cutting patterns and local search."""
