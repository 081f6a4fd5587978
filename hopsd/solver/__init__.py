"""Ways to solve the integer program. PuLP and CBC live here alone."""
