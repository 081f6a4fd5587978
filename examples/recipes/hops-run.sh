#!/bin/bash
# Starts the ranks of a script in this folder: sbatch hops-run.sh trainer.py
#SBATCH --comment=hops:reqs=1,2,4
#SBATCH --signal=USR1@60
#SBATCH --open-mode=append

srun hops-run "$@"
