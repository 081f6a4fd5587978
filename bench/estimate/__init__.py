"""How far the estimator is off: unstable data loading, and placements never measured."""
