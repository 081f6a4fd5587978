#!/bin/sh
# hops: TaskProlog (slurm.conf), as the user before each task. Slurm takes the lines "export X=Y"
# and "unset X" into the task's environment. In a job that is not hops' nothing here starts a process.

HOPS_RUN_DIR=/run/hops-node
HOPS_REPORT_DIR=
HOPS_PROFILER_PATH=
HOPS_REQUEUE_EXIT_CODE=85
site=${0%/*}/site.sh
[ -r "$site" ] || site=/etc/hops/site.sh
# shellcheck source=slurm_plugin/site.sh
[ -r "$site" ] && . "$site"

tasks=
hand_on() {
    while IFS= read -r line; do
        case $line in
            TASKS=*) tasks=${line#TASKS=} ;;
            HOPS_[A-Z]*=*) echo "export $line" ;;
        esac
    done
}

file=$HOPS_RUN_DIR/${SLURM_JOB_ID-}.${SLURMD_NODENAME-}
[ -s "$file" ] || [ -e "$file.left" ] || exit 0 # not a hops job
# shellcheck source=slurm_plugin/run_dir.sh
[ -r "${0%/*}/run_dir.sh" ] && . "${0%/*}/run_dir.sh" && only_ours "$HOPS_RUN_DIR" || exit 0
if [ -s "$file" ]; then
    hand_on < "$file"
else
    # slurmd runs no Prolog while it has the credential of the job's last run here in its cache,
    # which it clears at a start or an end of a job, but only two seconds after the last time
    # (22.05): a job that comes back at once, or just after another one's start, meets that.
    told=$("${0%/*}/prolog.sh" again)
    [ -n "$told" ] || exit 0
    hand_on << END
$told
END
fi
echo "export HOPS_REQUEUE_EXIT_CODE=$HOPS_REQUEUE_EXIT_CODE"
[ -n "$HOPS_REPORT_DIR" ] && echo "export HOPS_REPORT_DIR=$HOPS_REPORT_DIR"

if [ -n "$HOPS_PROFILER_PATH" ]; then
    case :${PYTHONPATH-}: in
        *:"$HOPS_PROFILER_PATH":*) ;; # srun's tasks inherit it from the batch script
        *) echo "export PYTHONPATH=$HOPS_PROFILER_PATH${PYTHONPATH:+:$PYTHONPATH}" ;;
    esac
fi

# sbatch leaves its options in the batch script's environment, where srun reads them: they
# describe a shape that the job does not have (SLURM_NTASKS=4 after --ntasks=4, on 22.05, where
# the job was given 6).
case ${SLURM_STEP_ID:--5} in
    -5 | 4294967291) # the batch script; unset on 22.05, -5 on 26.05
        for name in NTASKS_PER_NODE NTASKS_PER_SOCKET NTASKS_PER_CORE NTASKS_PER_GPU \
            CPUS_PER_TASK CPUS_PER_GPU TRES_PER_TASK GPUS GPUS_PER_NODE GPUS_PER_SOCKET \
            GPUS_PER_TASK GPU_BIND; do
            echo "unset SLURM_$name"
        done
        if [ -n "$tasks" ] && [ -n "${SLURM_NTASKS-}" ]; then
            echo "export SLURM_NTASKS=$tasks"
            echo "export SLURM_NPROCS=$tasks"
        fi
        ;;
esac
exit 0
