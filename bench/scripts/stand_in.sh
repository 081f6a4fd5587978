#!/bin/bash
# Stand-in for any program of a script: notes what it was given, prints a line, and sleeps.
# Runs under the names python, torchrun, mpirun and others; `stand_in NAME ...` acts as NAME. From a
# script's fourth program on it does not sleep, since some scripts run hundreds.
[ -n "$NOTES" ] || exit 127
name=${0##*/}
if [ "$name" = stand_in ]; then name=$1 && shift; fi
all=" $* "
gpus=0
case ${CUDA_VISIBLE_DEVICES-} in "" | NoDevFiles) ;; *)
    IFS=, read -ra list <<< "$CUDA_VISIBLE_DEVICES"
    gpus=${#list[@]}
    ;;
esac
count_of() { # OPTION: print its number; "gpu" and "auto" mean all GPUs here
    local found=
    [[ $all =~ [[:space:]]--?$1[=\ ]([0-9a-z]+) ]] && found=${BASH_REMATCH[1]}
    case $found in gpu | auto) found=$gpus ;; esac
    case $found in *[!0-9]*) found= ;; esac
    echo "$found"
}
ranks=1
case $name in
    torchrun) ranks=$(count_of 'nproc[_-]per[_-]node') ;;
    accelerate) ranks=$(count_of num_processes) machines=$(count_of num_machines) ranks=$((${ranks:-$gpus} / ${machines:-1})) ;;
    deepspeed) ranks=$(count_of num_gpus) ranks=${ranks:-$gpus} ;;
    mpirun | mpiexec | horovodrun) ranks=$(count_of '(n|np|c)') ranks=${ranks:-${SLURM_NTASKS-1}} ;;
    python*) [[ $all == *" -m torch.distributed."* ]] && ranks=$(count_of 'nproc[_-]per[_-]node') ;;
    nvidia-smi) echo "$gpus GPUs"; case $all in *" -l"*) exec sleep 600 ;; esac; exit 0 ;;
    sbatch) echo "Submitted batch job 1" && echo "$*" >> "$NOTES/submitted.$SLURM_JOB_ID" && exit 0 ;;
    conda | mamba | wandb | nvcc | which) exit 0 ;;
esac
ranks=${ranks:-1}
line="$name ranks=$ranks task=${SLURM_PROCID-}/${SLURM_STEP_NUM_TASKS-}/${SLURM_NTASKS-} tasks_per_node=${SLURM_NTASKS_PER_NODE-} gpus=$gpus on_node=${SLURM_GPUS_ON_NODE-} cores=${SLURM_CPUS_PER_TASK-} nodes=${SLURM_NNODES-} array=${SLURM_ARRAY_TASK_ID-} threads=${OMP_NUM_THREADS-}"
run=${SLURM_RESTART_COUNT:-0}
begun=$(grep -c "^begin $run " "$NOTES/job.$SLURM_JOB_ID" 2> /dev/null)
if [ "${begun:-0}" -ge 3 ]; then TRAINER= STAND_IN_SECONDS=0; fi
echo "begin $run $line" >> "$NOTES/job.$SLURM_JOB_ID"
echo "$name: $ranks of $gpus GPUs, task ${SLURM_PROCID-}"
if [ -n "${TRAINER-}" ] && [[ $name == python* ]] && [ "${SLURM_PROCID:-0}" = 0 ] && [ $ranks = 1 ]; then
    eval "$TRAINER" || exit
else
    sleep "${STAND_IN_SECONDS:-4}" || exit
fi
echo "end $run $line" >> "$NOTES/job.$SLURM_JOB_ID"
echo "$name: done, task ${SLURM_PROCID-}"
