#!/bin/sh
# hops: Prolog (slurm.conf), run as root on every node of a job before its first task there.
#
# It writes the variables of a hops job's tasks into a file that task_prolog.sh passes on: the
# comment is in the Prolog's environment but not in the TaskProlog's (Slurm 22.05 to 26.05).
# It always exits 0: a Prolog that fails drains its node.
#
# `prolog.sh again`, which task_prolog.sh runs as the job's user, writes to standard output instead.

case ${1-}:${SLURM_JOB_COMMENT-} in :hops:* | :*[\;,[:blank:]]hops:* | again:*) ;; *) exit 0 ;; esac

PATH=${PATH:+$PATH:}/usr/local/bin:/usr/bin:/bin # slurmd gives the Prolog no PATH (22.05)
HOPS_RUN_DIR=/run/hops-node
HOPS_STATE_DIR=
HOPS_RANGE_VALUES=8
HOPS_SCONTROL=scontrol
site=${0%/*}/site.sh
[ -r "$site" ] || site=/etc/hops/site.sh
# shellcheck source=slurm_plugin/site.sh
[ -r "$site" ] && . "$site"

# Asks slurmctld for what only it knows, once per node and start, never once per task: the GPUs of a
# job on several nodes, which may have different counts.
needed_of_slurmctld() {
    case ${SLURM_JOB_NUM_NODES:-1}:${SLURM_JOB_GPUS-} in
        1:?*) ;;
        *) ask_slurmctld ;;
    esac
}

ask_slurmctld() {
    timeout 5 "$HOPS_SCONTROL" show job --details --oneliner "$SLURM_JOB_ID" 2>&1
}

# is_silent STATUS ANSWER of a failed ask_slurmctld: whether to ask again. The errors of a silent
# slurmctld are many, and each release adds some, so the others are listed: without scontrol, for an
# unknown job, or for a user that slurmctld does not trust, a later attempt would fail as well.
is_silent() {
    case $1:$2 in
        126:* | 127:* | *"Invalid job id"* | *uthentication* | *"ermission denied"* | *"onfiguration file"*) return 1 ;;
        *) return 0 ;;
    esac
}

# patience STATUS ANSWER: the seconds to wait for slurmctld. An error that does not say that slurmctld
# is unreachable may be a permanent fault of this node.
patience() {
    case $1:$2 in
        124:* | *ontroller* | *"imed out"* | *"ytes were"* | *"essage receive"* | *onnection* | *"onfiguration source"*) echo 600 ;;
        *) echo 120 ;;
    esac
}

# Counts the GPUs of the whole allocation, by slurmctld's answer or, on one node, by the environment.
count_gpus() {
    if [ "${SLURM_JOB_NUM_NODES:-1}" = 1 ] && [ -n "${SLURM_JOB_GPUS-}" ]; then
        printf 'IDX:%s)\n' "$SLURM_JOB_GPUS"
    else
        printf '%s\n' "$1"
    fi | awk '
        # "JOB_GRES=gpu:a100:6", "JOB_GRES=gpu:a100:4,gpu:v100:2"
        match($0, /JOB_GRES=[^ ]*/) {
            words = substr($0, RSTART + 9, RLENGTH - 9)
            gsub(/\([^)]*\)/, "", words) # sockets: "gpu:a100:6(S:0-1)"
            n = split(words, items, ",")
            for (i = 1; i <= n; i++) {
                parts = split(items[i], part, ":")
                if (part[1] == "gpu") total += part[parts]
            }
        }
        # "IDX:0-2,5)"
        /^IDX:/ {
            n = split(substr($0, 5, length($0) - 5), items, ",")
            for (i = 1; i <= n; i++) {
                if (split(items[i], part, "-") == 2) total += part[2] - part[1] + 1
                else if (items[i] != "") total += 1
            }
        }
        END { print total + 0 }'
}

# Prints the GPUs of each of several nodes, "n[0-1]:2;n4:3", by slurmctld's answer.
gpus_by_node() {
    printf '%s\n' "$1" | awk '{
        for (at = 1; at <= NF; at++) {
            if ($at ~ /^Nodes=/) nodes = substr($at, 7)
            if ($at !~ /^GRES=/ || nodes !~ /^[][A-Za-z0-9_.,-]+$/) continue
            words = substr($at, 6)
            gsub(/\([^)]*\)/, "", words) # indices: "gpu:a100:2(IDX:0-1),gpu:v100:0(IDX:)"
            n = split(words, items, ",")
            total = 0
            for (i = 1; i <= n; i++) {
                parts = split(items[i], part, ":")
                if (part[1] == "gpu") total += part[parts]
            }
            if (total) found = found (found ? ";" : "") nodes ":" total
            nodes = ""
        }
    } END { if (found) print "HOPS_GPUS_BY_NODE=" found }'
}

# Prints the most iterations to measure, from the mark "#hops-profile=20" that hopsd appends to the
# comment; 0 if the job is not to be profiled.
profile_iterations() {
    case "$SLURM_JOB_COMMENT " in
        *' #hops-profile='[0-9]*)
            most=${SLURM_JOB_COMMENT##* #hops-profile=}
            printf '%s\n' "${most%%[!0-9]*}" ;;
        *' #hops-profile '*) echo 50 ;;
        *) echo 0 ;;
    esac
}

# Prints where hops stopped the job to move it, from the mark "#hops-moved=n0:2,n4:4".
moved_from() {
    case "$SLURM_JOB_COMMENT " in
        *' #hops-moved='*)
            from=${SLURM_JOB_COMMENT##* #hops-moved=} from=${from%% *}
            case $from in "" | *[!A-Za-z0-9_.,:/-]*) ;; *) echo "HOPS_MOVED_FROM=$from" ;; esac
            ;;
    esac
}

read_comment() {
    COMMENT=${SLURM_JOB_COMMENT%% #hops-*} GPUS=$(count_gpus "$1") NODES=${SLURM_JOB_NUM_NODES:-1} \
        RESTARTS=${SLURM_JOB_RESTART_COUNT:-0} \
        PROFILE=$(profile_iterations) RANGE=$HOPS_RANGE_VALUES \
        awk -f "${0%/*}/comment.awk"
    moved_from
    [ "${SLURM_JOB_NUM_NODES:-1}" = 1 ] || gpus_by_node "$1"
}

# word NAME ANSWER: a field of slurmctld's answer, in the form of the Prolog's environment.
word() {
    printf '%s\n' "$2" | sed -n "s/.* $1=\([^ ]*\).*/\1/p"
}

if [ "${1-}" = again ]; then
    # Without slurmctld srun cannot start anything either, so the job waits for ten minutes at most.
    began=$(date +%s)
    until job=$(ask_slurmctld); do
        status=$?
        is_silent $status "$job" &&
            [ "$(date +%s)" -lt $((began + $(patience $status "$job"))) ] || exit 0
        sleep $((5 + (SLURM_JOB_ID + ${SLURM_PROCID:-0}) % 11)) # so that not all tasks ask at once
    done
    SLURM_JOB_COMMENT=${job##* Comment=} # and the fields after it, which the parser ignores
    SLURM_JOB_NUM_NODES=$(word NumNodes "$job")
    SLURM_JOB_RESTART_COUNT=$(word Restarts "$job")
    SLURM_JOB_GPUS=
    read_comment "$job"
    exit 0
fi

# Creates the job's own folder in memory, for state that outlives its processes: see epilog.sh. Only
# root can create it there, so its owner is who it was made for. For `mounts` see memory.py. Root does
# not look into a folder that a user has owned: one left by an earlier job with this number is renamed.
make_state_dir() {
    case $HOPS_STATE_DIR:${SLURM_JOB_UID-} in :* | *: | *:*[!0-9]*) return 0 ;; esac
    make_ours "$HOPS_STATE_DIR" || return 1
    state=$HOPS_STATE_DIR/$SLURM_JOB_ID.${SLURMD_NODENAME-}
    [ -z "$(find "$state" -prune ! -user "$SLURM_JOB_UID" 2> /dev/null)" ] || mv -T "$state" "$state.old" || return 1
    [ -d "$state" ] && return 0
    mkdir -m 700 "$state" && readlink /proc/self/ns/mnt > "$state/mounts" &&
        chmod 644 "$state/mounts" && chown "$SLURM_JOB_UID" "$state"
}

file=$HOPS_RUN_DIR/$SLURM_JOB_ID.${SLURMD_NODENAME-}
# shellcheck source=slurm_plugin/run_dir.sh
{
    umask 022
    [ -r "${0%/*}/run_dir.sh" ] && . "${0%/*}/run_dir.sh" &&
        make_ours "$HOPS_RUN_DIR" &&
        if told=$(needed_of_slurmctld) || ! is_silent $? "$told"; then
            read_comment "$told" > "$file.new" && mv "$file.new" "$file"
            [ -s "$file" ] || rm -f "$file" # the comment is not ours after all
        else
            true > "$file" # task_prolog.sh asks again, and waits longer
        fi
} || timeout 5 logger -t hops "no environment for job $SLURM_JOB_ID: cannot write $file, or others could"
make_state_dir 2> /dev/null ||
    timeout 5 logger -t hops "no folder in memory for job $SLURM_JOB_ID: HOPS_STATE_DIR=$HOPS_STATE_DIR is not root's own"
exit 0
