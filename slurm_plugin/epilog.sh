#!/bin/sh
# hops: Epilog (slurm.conf), as root on every node when a job has left it: removes what
# prolog.sh wrote, and notes for a month that the job was here, for task_prolog.sh. Has what the job
# left in memory written to the file system, and does not wait: the GPUs are free once this ends.
# Always exits 0: an Epilog that fails drains its node.
#
# `epilog.sh later`: run by itself, in a session of its own; saves, frees old memory, removes small files.

case ${SLURM_JOB_COMMENT-} in hops:* | *[\;,[:blank:]]hops:*) ;; *) exit 0 ;; esac

PATH=${PATH:+$PATH:}/usr/local/bin:/usr/bin:/bin
HOPS_RUN_DIR=/run/hops-node
HOPS_STATE_DIR=
site=${0%/*}/site.sh
[ -r "$site" ] || site=/etc/hops/site.sh
# shellcheck source=slurm_plugin/site.sh
[ -r "$site" ] && . "$site"

# Options of setpriv that keep the account's other processes from tracing one and from writing into its
# memory, by which they would get out of their job's limits: it has a capability that they lack, of no use to
# it (capabilities(7), ptrace(2)). None where the node does not give it.
guard=
keeps_out="--inh-caps=+wake_alarm --ambient-caps=+wake_alarm"
# shellcheck disable=SC2086
[ "$(id -u)" != 0 ] || ! timeout 5 setpriv --reuid=65534 --clear-groups $keeps_out --no-new-privs true 2> /dev/null || guard=$keeps_out

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
        # shellcheck disable=SC2086
        set -- setpriv --reuid="$account" $guard --no-new-privs "$@"
    fi
    timeout -k 10 "$seconds" env -i PATH="$PATH" "$@"
}

save() {
    [ -n "$(find "$1" -prune -type d -user "$SLURM_JOB_UID")" ] || return 0
    as "$SLURM_JOB_UID" 3600 /bin/sh "$scripts/save.sh" "$1"
}

# The job's small files in /tmp, of task_prolog.sh and of frameworks/request.py, but not those of a run that has
# begun since. Users may have made any number of names there: find keeps none of them.
clean() {
    as "$SLURM_JOB_UID" 60 find "${TMPDIR:-/tmp}" -mindepth 1 -maxdepth 1 -user "$SLURM_JOB_UID" ! -newer "$file.left" \
        \( -name "hops-hosts.$SLURM_JOB_ID.*" -o -name "hops-training.$SLURM_JOB_ID.*" \) -delete
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
        # A job that came back without a Prolog has nothing else here, for as long as it runs. They take room
        # in /run, which has some 800,000 names: where jobs come by the thousands, for an hour.
        left=$(find "$HOPS_RUN_DIR" -name '*.left' -mtime +30 -delete -o -name '*.left' -print | wc -l)
        [ "$left" -lt 10000 ] || find "$HOPS_RUN_DIR" -name '*.left' -mmin +60 -delete
        touch "$file.left"
    fi
    case ${SLURM_JOB_UID-} in "" | *[!0-9]*) exit 0 ;; esac
    if [ "${1-}" = later ]; then
        [ -n "$HOPS_STATE_DIR" ] && only_ours "$HOPS_STATE_DIR" || HOPS_STATE_DIR=
        [ -z "$HOPS_STATE_DIR" ] || save "$HOPS_STATE_DIR/$SLURM_JOB_ID.${SLURMD_NODENAME-}"
        clean
        [ -z "$HOPS_STATE_DIR" ] || sweep
    else
        # slurmd ends an Epilog's process group with it: this returns once there is a new session.
        # shellcheck disable=SC2016
        setsid --wait /bin/sh -c 'cd / && /bin/sh "$0" later &' "$0" < /dev/null > /dev/null 2>&1
    fi
fi
exit 0
