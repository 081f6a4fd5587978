#!/bin/bash
#SBATCH --comment=hops:reqs=1,2,4
#SBATCH --signal=B:USR1@60
#SBATCH --open-mode=append

stop=$PWD/stop.$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}
trap 'touch "$stop"' USR1

# One torchrun per node, which starts a rank for each GPU there. The head is the first node.
export PORT=$((20000 + SLURM_JOB_ID % 10000))
srun --ntasks="$SLURM_NNODES" --ntasks-per-node=1 bash -c '
    IFS=, read -ra gpus <<< "${CUDA_VISIBLE_DEVICES:-0}"
    exec torchrun --nnodes="$SLURM_NNODES" --node-rank="$SLURM_NODEID" \
        --nproc-per-node="${#gpus[@]}" --master-addr="$SLURM_LAUNCH_NODE_IPADDR" \
        --master-port="$PORT" "$@"' torchrun torchrun.py --stop "$stop" "$@" &

# The signal ends `wait`, not srun.
while kill -0 $! 2> /dev/null; do wait $!; done
wait $!; status=$?
if [[ $status -eq 0 && -e $stop ]]; then
    rm "$stop"
    scontrol requeue "$SLURM_JOB_ID"
    sleep 600 # until Slurm ends this run
fi
exit "$status"
