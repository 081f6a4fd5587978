#!/bin/sh
# hops: Epilog (slurm.conf), as root on every node when a job has left it: removes what
# prolog.sh wrote, and notes for a month that the job was here, for task_prolog.sh. Has what the job
# left in memory written to the file system, and does not wait: the GPUs are free once this ends.
# Always exits 0: an Epilog that fails drains its node.
#
# `epilog.sh later`: run by itself, in a session of its own; saves, and frees old memory.

case ${SLURM_JOB_COMMENT-} in hops:* | *[\;,[:blank:]]hops:*) ;; *) exit 0 ;; esac

PATH=${PATH:+$PATH:}/usr/local/bin:/usr/bin:/bin
HOPS_RUN_DIR=/run/hops-node
HOPS_STATE_DIR=
site=${0%/*}/site.sh
[ -r "$site" ] || site=/etc/hops/site.sh
# shellcheck source=slurm_plugin/site.sh
[ -r "$site" ] && . "$site"

# as ACCOUNT SECONDS COMMAND...: with that account's rights and without a job's limits, so for SECONDS
# at most. What is in a user's folder is that user's: a FIFO, a link, millions of names.
as() {
    account=$1 seconds=$2
    shift 2
    if [ "$(id -u)" = 0 ]; then # not on a single-user cluster
        if group=$(id -g "$account" 2> /dev/null); then
            set -- --regid="$group" --init-groups "$@"
        else # it is gone
            set -- --regid=65534 --clear-groups "$@"
        fi
        set -- setpriv --reuid="$account" --no-new-privs "$@"
    fi
    timeout -k 10 "$seconds" env -i PATH="$PATH" "$@"
}

save() {
    [ -n "$(find "$1" -prune -type d -user "$SLURM_JOB_UID")" ] || return 0
    as "$SLURM_JOB_UID" 3600 /bin/sh "$scripts/save.sh" "$1"
}

# Folders of jobs that are no longer here, to which nothing was added for a day. Only root can have
# put them there; their owners empty them. Times that a user cannot set.
sweep() {
    find "$HOPS_STATE_DIR" -xdev -mindepth 1 -maxdepth 1 -type d -name '[0-9]*.*' -cmin +1440 |
        while IFS= read -r old; do
            [ ! -e "$HOPS_RUN_DIR/${old##*/}" ] && [ ! -L "$old" ] || continue
            as "$(stat -c %u -- "$old")" 60 find "$old" -xdev -mindepth 1 -delete
            rmdir -- "$old"
        done
}

scripts=${0%/*}
[ -r "$scripts/save.sh" ] || scripts=/etc/hops
file=$HOPS_RUN_DIR/$SLURM_JOB_ID.${SLURMD_NODENAME-}
# shellcheck source=slurm_plugin/run_dir.sh
if [ -r "${0%/*}/run_dir.sh" ] && . "${0%/*}/run_dir.sh" && only_ours "$HOPS_RUN_DIR"; then
    if [ "${1-}" != later ]; then
        rm -f "$file"
        # A job that came back without a Prolog has nothing else here, for as long as it runs.
        find "$HOPS_RUN_DIR" -name '*.left' -mtime +30 -delete
        touch "$file.left"
        rm -f "${TMPDIR:-/tmp}/hops-hosts.$SLURM_JOB_ID".* # of task_prolog.sh
        rm -f "${TMPDIR:-/tmp}/hops-training.$SLURM_JOB_ID".* # of frameworks/request.py
    fi
    case $HOPS_STATE_DIR:${SLURM_JOB_UID-} in :* | *: | *:*[!0-9]*) exit 0 ;; esac
    only_ours "$HOPS_STATE_DIR" || exit 0
    if [ "${1-}" = later ]; then
        save "$HOPS_STATE_DIR/$SLURM_JOB_ID.${SLURMD_NODENAME-}"
        sweep
    else
        # slurmd ends an Epilog's process group with it: this returns once there is a new session.
        # shellcheck disable=SC2016
        setsid --wait /bin/sh -c 'cd / && /bin/sh "$0" later &' "$0" < /dev/null > /dev/null 2>&1
    fi
fi
exit 0
