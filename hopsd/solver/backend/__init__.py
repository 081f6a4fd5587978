"""The solvers underneath: CBC, HiGHS and linear programs."""
