"""Slurm's accounting: limits, shares and rights of users, accounts and QOS."""
