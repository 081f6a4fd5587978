#!/bin/bash
#SBATCH --comment=hops:reqs=1
#SBATCH --signal=USR1@60
#SBATCH --open-mode=append

srun python plain.py "$@"
