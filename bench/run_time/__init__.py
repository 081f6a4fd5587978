"""How well run times are predicted, and what that does to every policy."""
