"""The algorithm, pure: numbers in, numbers out. Imports model only."""
