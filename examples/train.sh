#!/bin/bash
#SBATCH --job-name=train
#SBATCH --output=%x-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
#
# sbatch --comment=hops:reqs=1,2,4 examples/train.sh --model conv --samples 20000
#
# Trains on exactly the GPUs that Slurm allocates, on any number of nodes, even with unequal counts.
# PYTHON: an interpreter with PyTorch. CHECKPOINTS: a folder that all nodes share.
# TRAIN: the script to run, relative to the folder of submission.
# LAUNCHER: the module that starts the ranks, torch.distributed.run if hops is not installed. That one
# does not run with Debian's PyTorch, which is built without libuv (2.6); hops' launcher does.

run=${SLURM_RESTART_COUNT:-0}
folder=${CHECKPOINTS:-${SLURM_SUBMIT_DIR:?run it with sbatch}/checkpoints}/$SLURM_JOB_ID
# The scheduler wants the GPUs: the training sees the file, saves, and ends.
trap 'mkdir -p "$folder" && touch "$folder/stop.$run"' USR1 USR2
mkdir -p "$folder" && cd "$SLURM_SUBMIT_DIR" || exit

: "${PYTHON:=python3}"
if [[ -z ${LAUNCHER:-} ]]; then
    "$PYTHON" -c "import hops_profiler.launch" 2> /dev/null && LAUNCHER=hops_profiler.launch
    : "${LAUNCHER:=torch.distributed.run}"
fi

if [[ $LAUNCHER == hops_profiler.launch ]]; then
    # It imports PyTorch once and forks a rank for each GPU, or for each CPU that stands for one. It
    # finds GPUs, nodes and a port itself, and needs srun only on several nodes, so a restart takes
    # less time. All nodes have the same number of cores per GPU.
    IFS=, read -ra gpus <<< "${CUDA_VISIBLE_DEVICES:-0}"
    threads=$((${SLURM_CPUS_ON_NODE:-1} / ${#gpus[@]}))
    export OMP_NUM_THREADS=$((threads > 0 ? threads : 1))
    start=("$PYTHON" -m "$LAUNCHER")
else
    # Below the range from which Linux assigns ports to outgoing connections: one of these could take
    # a free port before torchrun listens there, seconds later.
    MASTER_PORT=$("$PYTHON" -c '
import random, socket
while True:
    port = random.randrange(20000, 32000)
    with socket.socket() as s:
        if s.connect_ex(("127.0.0.1", port)):
            print(port)
            break') || exit
    export MASTER_PORT PYTHON LAUNCHER
    # One task per node starts one process for each GPU there: CUDA_VISIBLE_DEVICES is the node's own.
    # The processes share the job's cores on the node.
    start=(srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1
        --kill-on-bad-exit=1 bash -c '
            IFS=, read -ra gpus <<< "${CUDA_VISIBLE_DEVICES:-0}"
            threads=$((${SLURM_CPUS_ON_NODE:-1} / ${#gpus[@]}))
            export OMP_NUM_THREADS=$((threads > 0 ? threads : 1))
            exec "$PYTHON" -m "$LAUNCHER" \
                --nnodes="$SLURM_JOB_NUM_NODES" --node-rank="$SLURM_NODEID" \
                --nproc-per-node="${#gpus[@]}" \
                --master-addr="$SLURM_LAUNCH_NODE_IPADDR" --master-port="$MASTER_PORT" "$@"
        ' "$LAUNCHER")
fi
"${start[@]}" "${TRAIN:-examples/train.py}" --checkpoints "$folder" "$@" &
launcher=$!
# A trapped signal ends `wait` early: repeat until the launcher itself has ended.
while kill -0 "$launcher" 2> /dev/null; do wait "$launcher"; done
wait "$launcher"; status=$?

if [[ $status -ne 0 || -e $folder/finished || ! -e $folder/stop.$run ]]; then
    exit "$status"
fi
# Saved on request. Slurm should requeue the job and record it neither as completed nor as failed, so
# the script must not end first. Without scontrol, whoever asked for the save requeues the job.
scontrol requeue "$SLURM_JOB_ID"
while :; do sleep 60 & wait $!; done
