#!/bin/bash
#SBATCH --job-name=shapes
#SBATCH --requeue
# One training over all GPUs that Slurm allocates; each GPU is a device of device.sh.
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
address=$(cat "$HOPS_EMULATION/address.$first")
export address RES_OPTIONS="timeout:1 attempts:1" # no name server is reachable there
exec srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 \
    --kill-on-bad-exit=1 bash -c '
        IFS=, read -ra gpus <<< "$CUDA_VISIBLE_DEVICES"
        exec nsenter --net="/run/netns/$HOPS_NETWORK-$SLURMD_NODENAME" \
            "$HOPS_PYTHON" -m torch.distributed.run \
            --nnodes="$SLURM_JOB_NUM_NODES" --node-rank="$SLURM_NODEID" \
            --nproc-per-node="${#gpus[@]}" --master-addr="$address" --master-port=$((20000 + SLURM_JOB_ID % 10000)) \
            --no-python "$HOPS_EMULATION/device.sh" "$@"
    ' torchrun "$@"
