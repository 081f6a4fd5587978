"""Errors of the estimator: unstable data loading, and placements that were never measured."""
