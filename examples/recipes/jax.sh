#!/bin/bash
#SBATCH --comment=hops:reqs=1,2,4;preempt=yes
#SBATCH --signal=USR1@60
#SBATCH --open-mode=append

srun --ntasks="$SLURM_NNODES" --ntasks-per-node=1 python jax_loop.py "$@"
