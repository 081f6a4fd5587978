"""The solvers behind the solver: CBC, HiGHS, linear programs."""
