"""What Slurm's accounting says: limits, shares and rights of users, accounts and QOS."""
