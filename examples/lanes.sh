#!/bin/bash
#SBATCH --job-name=lanes
#SBATCH --output=%x-%j.log
#SBATCH --open-mode=append
#SBATCH --nodes=1
#SBATCH --signal=B:USR1@60
#
# sbatch --comment='hops:reqs=1,2,4;app=search' examples/lanes.sh trials.txt
#
# The trainings of trials.txt, one command per line, take turns on the job's GPUs. The lane is the
# batch script's process, so it gets the signal, and makes each training save.
exec hops-lane "$@"
