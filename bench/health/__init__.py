"""Measure how soon slow servers are named, how often healthy ones are, and what plans gain."""
