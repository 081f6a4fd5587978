#!/bin/sh
# hops: TaskProlog (slurm.conf), run as the user before each task. Slurm applies the lines "export X=Y"
# and "unset X" to the task's environment. In a job that is not hops' this starts no process.

HOPS_RUN_DIR=/run/hops-node
HOPS_STATE_DIR=
HOPS_REPORT_DIR=
HOPS_PROFILER_PATH=
HOPS_REQUEUE_EXIT_CODE=85
HOPS_APPTAINER_CONF="/etc/apptainer/apptainer.conf /usr/local/etc/apptainer/apptainer.conf
    /etc/singularity/singularity.conf /usr/local/etc/singularity/singularity.conf"
HOPS_SCONTROL=scontrol
site=${0%/*}/site.sh
[ -r "$site" ] || site=/etc/hops/site.sh
# shellcheck source=slurm_plugin/site.sh
[ -r "$site" ] && . "$site"

gpus= by_node= moved_from= restarts=
hand_on() {
    while IFS= read -r line; do
        case $line in
            HOPS_GPUS=*) gpus=${line#HOPS_GPUS=} ;;
            HOPS_GPUS_BY_NODE=*) by_node=${line#HOPS_GPUS_BY_NODE=} ;;
            HOPS_MOVED_FROM=*) moved_from=${line#HOPS_MOVED_FROM=} ;;
            HOPS_RESTART_COUNT=*) restarts=${line#HOPS_RESTART_COUNT=} ;;
        esac
        case $line in
            HOPS_[A-Z]*=*) echo "export $line" ;;
        esac
    done
}

# Prints a count for each node: "4 4 3" from "4(x2),3".
for_each_node() {
    rest=$1,
    while [ -n "$rest" ]; do
        item=${rest%%,*} rest=${rest#*,}
        count=${item%%"("*} times=1
        case $item in *"(x"*")") times=${item##*x} times=${times%")"} ;; esac
        case $count$times in *[!0-9]*) continue ;; esac
        [ -n "$count" ] && [ -n "$times" ] || continue
        while [ "$times" -gt 0 ]; do printf '%s ' "$count" && times=$((times - 1)); done
    done
}

# Sets the total number of tasks and the most on a node, from "4(x2),3".
count_tasks() {
    tasks=0 most=0 on_nodes=$1
    for count in $(for_each_node "$1"); do
        tasks=$((tasks + count))
        [ "$count" -le "$most" ] || most=$count
    done
}

# Sets share to the cores that each task can have on all nodes, 0 if they are unknown.
cores_for_each() {
    share=0
    # shellcheck disable=SC2046
    set -- $(for_each_node "${SLURM_JOB_CPUS_PER_NODE:-${SLURM_CPUS_ON_NODE-}}")
    for count in $(for_each_node "$on_nodes"); do
        [ $# -gt 0 ] || break
        if [ "$count" -gt 0 ]; then
            here=$(($1 / count))
            [ "$here" -gt 0 ] || here=1
            [ "$share" -gt 0 ] && [ "$share" -le "$here" ] || share=$here
        fi
        shift
    done
}

# most_tasks_here MOST: what --ntasks-per-node comes to for the GPUs here if it is a maximum beside --ntasks; else MOST.
most_tasks_here() {
    case "|${HOPS_ASKS-}|" in
        *"|most_tasks:"[1-9]*/[1-9]*) ;;
        *) echo "$1" && return ;;
    esac
    each=${HOPS_ASKS##*most_tasks:} each=${each%%"|"*}
    case ${each%/*}${each#*/}${SLURM_GPUS_ON_NODE-} in
        *[!0-9]*) echo "$1" ;;
        *) echo $((${each%/*} * ${SLURM_GPUS_ON_NODE:-0} / ${each#*/})) ;;
    esac
}

# correct NAME VALUE: replaces the request that sbatch left by what was allocated; other variables stay.
correct() {
    [ -z "$2" ] || [ "$2" = 0 ] || echo "export $1=$2"
}

# with_count NAME COUNT LIST: the list, such as "cpu:12,gres/gpu:a100=4", with another count of NAME, or without it.
with_count() {
    left=$3, made=
    while [ "$left" != , ] && [ -n "$left" ]; do
        item=${left%%,*} left=${left#*,}
        case $item in
            "$1"[:=]*) item=${2:+${item%[:=]*}=$2} ;;
        esac
        made=$made${item:+,$item}
    done
    printf '%s' "${made#,}"
}

# Makes srun start a task for each GPU on nodes with different numbers of GPUs, by a host file that names
# each node as often as it has GPUs. Slurm itself distributes tasks by cores, not by GPUs. If the file
# cannot be written, srun fails because it is missing: otherwise nobody would notice idle GPUs.
one_for_each_gpu() {
    PATH=${PATH:+$PATH:}/usr/local/bin:/usr/bin:/bin
    each= rest=$by_node\; most=0 hosts=${TMPDIR:-/tmp}/hops-hosts.$SLURM_JOB_ID
    made=$(mktemp "$hosts.XXXXXX" 2> /dev/null) || made=
    while [ -n "$rest" ]; do
        item=${rest%%;*} rest=${rest#*;} names=${item%:*} count=${item##*:}
        case $count in *[!0-9]* | "") return 1 ;; esac
        [ "$count" -le "$most" ] || most=$count
        for name in $(timeout 5 "$HOPS_SCONTROL" show hostnames "$names"); do
            each=${each:+$each,}$count left=$count
            while [ "$left" -gt 0 ]; do echo "$name" && left=$((left - 1)); done
        done
    done > "${made:-/dev/null}"
    if [ -z "$made" ] || [ "$(wc -l < "$made")" != "$gpus" ]; then
        # Slurm writes the text after "print" to the task's output.
        echo "print hops: srun cannot start a task for each of $gpus GPUs on $by_node:" \
            "${TMPDIR:-/tmp} takes no file, or $HOPS_SCONTROL does not name the nodes"
        [ -z "$made" ] || rm -f "$made"
        made=$hosts.missing
    fi
    tasks=$gpus on_nodes=$each
    echo "export SLURM_HOSTFILE=$made"
    echo "export SLURM_DISTRIBUTION=arbitrary"
    echo "export SLURM_NTASKS=$gpus"
    echo "export SLURM_NPROCS=$gpus"
    echo "export SLURM_TASKS_PER_NODE=$each"
    [ -z "${SLURM_GPUS_PER_NODE-}" ] || echo "export SLURM_GPUS=$gpus"
    for name in NTASKS_PER_NODE GPUS_PER_NODE GRES; do # these mean the same count on every node
        echo "unset SLURM_$name"
        unset "SLURM_$name"
    done
}

# sbatch passes a job's environment on to the jobs that it submits. hops' variables of one job are wrong
# in another: a child would end like a profile run, or train at its parent's learning rate.
case ${HOPS_JOB_ID:-${SLURM_JOB_ID-}} in
    "${SLURM_JOB_ID-}") ;;
    *)
        for name in JOB JOB_ID REQS GPUS GPUS_BY_NODE NODES MOVED_FROM RESTART_COUNT LR PROFILE BATCH WORKLOAD APP \
            STATE_DIR REPORT_DIR REQUEUE_EXIT_CODE RUN_KEY TRAINS TRIAL; do
            echo "unset HOPS_$name"
        done
        # job_submit.lua sets these two for a hops job itself.
        [ "$HOPS_JOB_ID" = new ] || {
            echo "unset HOPS_ASKS"
            echo "unset HOPS_CPUS_PER_TASK"
            HOPS_ASKS='' HOPS_CPUS_PER_TASK=''
        }
        ;;
esac

file=$HOPS_RUN_DIR/${SLURM_JOB_ID-}.${SLURMD_NODENAME-}
# job_submit.lua sets both variables for a hops job, so it is recognized even if the Prolog could write nothing.
case ${HOPS_ASKS:+yes}:${HOPS_JOB_ID-} in
    yes:new | yes:"${SLURM_JOB_ID-}") submitted=yes ;;
    *)
        submitted=
        [ -e "$file" ] || [ -e "$file.left" ] || exit 0 # not a hops job
        ;;
esac
# shellcheck source=slurm_plugin/run_dir.sh
[ -r "${0%/*}/run_dir.sh" ] && . "${0%/*}/run_dir.sh" || exit 0
trusted=
only_ours "$HOPS_RUN_DIR" && trusted=yes
[ -n "$trusted$submitted" ] || exit 0
[ -z "$HOPS_STATE_DIR" ] || only_ours "$HOPS_STATE_DIR" || HOPS_STATE_DIR=
if [ -n "$trusted" ] && [ -s "$file" ]; then
    hand_on < "$file"
else
    # slurmd runs no Prolog while it has the credential of the job's last run here in its cache,
    # which it clears when a job starts or ends, but at most every two seconds (22.05): this affects
    # a job that comes back at once, or just after another one's start. If slurmctld is silent,
    # prolog.sh leaves the file empty; if the folder is full or read-only, there is no file.
    told=$("${0%/*}/prolog.sh" again)
    if [ -z "$told" ]; then
        case "|${HOPS_ASKS-}|" in
            *"|shape:any|"*"tasks:1/1|"*) # one task per node would leave GPUs idle, and nobody would notice
                echo "print hops: srun starts nothing on ${SLURMD_NODENAME-}, since slurmctld does not say which GPUs the job has"
                echo "export SLURM_HOSTFILE=$file.missing"
                echo "export SLURM_DISTRIBUTION=arbitrary"
                ;;
        esac
        exit 0
    fi
    hand_on << END
$told
END
fi
echo "export HOPS_REQUEUE_EXIT_CODE=$HOPS_REQUEUE_EXIT_CODE"
[ -n "$HOPS_REPORT_DIR" ] && echo "export HOPS_REPORT_DIR=$HOPS_REPORT_DIR"
state=$HOPS_STATE_DIR/$SLURM_JOB_ID.${SLURMD_NODENAME-}
[ -n "$HOPS_STATE_DIR" ] && [ -w "$state" ] && echo "export HOPS_STATE_DIR=$state"

if [ -n "$HOPS_PROFILER_PATH" ]; then
    case :${PYTHONPATH-}: in
        *:"$HOPS_PROFILER_PATH":*) ;; # srun's tasks inherit it from the batch script
        *) echo "export PYTHONPATH=$HOPS_PROFILER_PATH${PYTHONPATH:+:$PYTHONPATH}" ;;
    esac
fi

# with_ours LIST: the list of folders that apptainer binds, with ours added.
with_ours() {
    binds=$1
    for folder in "${HOPS_PROFILER_PATH%/*}" "$HOPS_REPORT_DIR"; do
        case ,$binds, in *,"$folder",*) continue ;; esac
        case $folder in *[,:]*) continue ;; esac
        [ -n "$folder" ] && [ -d "$folder" ] && binds=${binds:+$binds,}$folder
    done
    printf '%s' "$binds"
}

# Whether apptainer can create a folder that an image lacks; if not, binding it keeps apptainer from starting.
makes_folders() {
    for conf in $HOPS_APPTAINER_CONF; do
        [ -r "$conf" ] && grep -q '^enable overlay *= *no' "$conf" &&
            grep -q '^enable underlay *= *no' "$conf" && return 1
    done
    return 0
}

# apptainer passes PYTHONPATH on, but not the folders. APPTAINER_* takes precedence over SINGULARITY_*:
# ours is the latter, so that it never hides what a script or a module sets later. apptainer joins
# BINDPATH and BIND, of which scripts mostly set the second. With --writable it could not create the
# folders inside, and would not start.
case "|${HOPS_ASKS-}|${APPTAINER_WRITABLE:+writable}${SINGULARITY_WRITABLE:+writable}" in
    *"|starts:"*writable*) ;;
    *"|starts:"*apptainer*)
        ours=$(with_ours "")
        if [ -z "$ours" ] || ! makes_folders; then
            :
        elif [ -z "${APPTAINER_BINDPATH-}" ]; then
            echo "export SINGULARITY_BINDPATH=$(with_ours "${SINGULARITY_BINDPATH-}")"
        else
            echo "export APPTAINER_BINDPATH=$(with_ours "$APPTAINER_BINDPATH")"
            case ${SINGULARITY_BINDPATH-} in
                "") ;;
                "$ours") echo "unset SINGULARITY_BINDPATH" ;; # inherited from the batch script
                *) echo "export SINGULARITY_BINDPATH=$(with_ours "$SINGULARITY_BINDPATH")" ;;
            esac
        fi
        ;;
esac

# sbatch leaves its options in the batch script's environment, where the script and srun read them:
# totals and counts per node are replaced by those of the job's shape, as in an ordinary job of this
# shape. Requests per task or per GPU are valid in every shape.
case ${SLURM_STEP_ID:--5} in
    -5 | 4294967291) # the batch script; unset on 22.05, -5 on 26.05
        # Say in one line of the job's own output what happened to it.
        case $restarts in
            0 | "") ;;
            *)
                how="started again on"
                [ -z "$moved_from" ] || how="moved from $moved_from to"
                echo "print hops: $how $(echo "${by_node:-${SLURMD_NODENAME-}:$gpus}" | tr ';' ',') at $(date +%H:%M)"
                ;;
        esac
        # Part of the names of files in /tmp, so that no other user can create them first; steps inherit it.
        echo "export HOPS_RUN_KEY=$(od -A n -N 8 -t x8 /dev/urandom | tr -d ' ')"
        count_tasks "${SLURM_TASKS_PER_NODE-}"
        uneven=
        case "|${HOPS_ASKS-}|" in
            *"|shape:any|"*"tasks:1/1|"*)
                if [ "$tasks" != "$gpus" ] && [ -n "$by_node" ]; then
                    one_for_each_gpu && uneven=yes || count_tasks "${SLURM_TASKS_PER_NODE-}"
                fi
                ;;
        esac
        case "$uneven|${HOPS_ASKS-}|" in
            yes*) ;;
            *"|shape:"*"|counted:yes|"* | "||")
                [ -z "${SLURM_NTASKS-}" ] || correct SLURM_NTASKS "$tasks"
                [ -z "${SLURM_NPROCS-}" ] || correct SLURM_NPROCS "$tasks"
                ;;
            *) # hops always requests tasks, and `srun -N1 hostname` would start them all
                echo "unset SLURM_NTASKS"
                echo "unset SLURM_NPROCS"
                ;;
        esac
        [ -z "${SLURM_NTASKS_PER_NODE-}" ] || correct SLURM_NTASKS_PER_NODE "$(most_tasks_here "$most")"
        # From 23.11 on Slurm passes the one core that hops requests in two variables, and srun fails
        # if they differ.
        cores=${HOPS_CPUS_PER_TASK-} tres=${SLURM_TRES_PER_TASK-}
        case $cores in
            *[!0-9]* | "") ;;
            *)
                cores_for_each # a job gets no more than its GPUs' share of a node
                [ "$share" = 0 ] || [ "$cores" -le "$share" ] || cores=$share
                correct SLURM_CPUS_PER_TASK "$cores"
                tres=$(with_count cpu "$cores" "$tres")
                ;;
        esac
        # Use memory per GPU, the site's default or requested, instead of memory per CPU, which Slurm
        # set while the job had no GPUs.
        case "|${HOPS_ASKS-}|" in
            *"|memory:default|"* | *"|memory:"[0-9]*) echo "unset SLURM_MEM_PER_CPU" ;;
        esac
        # The only task of a node (--ntasks-per-node=1 --gpus-per-task=4) gets all GPUs there, if their
        # number is the same on each node.
        of_task=
        case "|${HOPS_ASKS-}|:${SLURM_GPUS_PER_TASK-}$tres" in
            "||"* | *"|tasks:"* | *"|tasks_each:"* | *"|:") ;;
            *)
                of_task=${SLURM_GPUS_ON_NODE:-0}
                [ "$((of_task * ${SLURM_JOB_NUM_NODES:-1}))" = "$gpus" ] || {
                    of_task=
                    echo "unset SLURM_GPUS_PER_TASK"
                }
                tres=$(with_count gres/gpu "$of_task" "$tres")
                ;;
        esac
        [ "$tres" = "${SLURM_TRES_PER_TASK-}" ] || echo "export SLURM_TRES_PER_TASK=$tres"
        for name in GPUS GPUS_PER_NODE GPUS_PER_TASK; do # "8" or "a100:8"
            eval "asked=\${SLURM_$name-}"
            case $name in
                GPUS) given=$gpus ;;
                GPUS_PER_NODE) given=${SLURM_GPUS_ON_NODE-} ;;
                *) given=$of_task ;;
            esac
            kind=${asked%:*}:
            [ "$kind" = "$asked:" ] && kind=
            [ -z "$asked" ] || [ -z "$given" ] || echo "export SLURM_$name=$kind$given"
        done
        for name in NTASKS_PER_SOCKET GPUS_PER_SOCKET; do # job_submit.lua says that they are ignored
            echo "unset SLURM_$name"
        done
        ;;
esac
exit 0
