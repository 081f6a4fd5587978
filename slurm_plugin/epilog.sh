#!/bin/sh
# hops: Epilog (slurm.conf), run as root on every node that a job has left. It removes what prolog.sh
# wrote, and records for a month that the job was here, for task_prolog.sh. It starts writing what the
# job left in memory to the file system, but does not wait: the GPUs are free once the Epilog ends.
# It always exits 0: an Epilog that fails drains its node.
#
# `epilog.sh later`, which it runs in a separate session, saves, frees old memory and removes small files.

case ${SLURM_JOB_COMMENT-} in hops:* | *[\;,[:blank:]]hops:*) ;; *) exit 0 ;; esac

PATH=${PATH:+$PATH:}/usr/local/bin:/usr/bin:/bin
HOPS_RUN_DIR=/run/hops-node
HOPS_STATE_DIR=
site=${0%/*}/site.sh
[ -r "$site" ] || site=/etc/hops/site.sh
# shellcheck source=slurm_plugin/site.sh
[ -r "$site" ] && . "$site"

# Options of setpriv that keep the account's other processes from tracing ours and from writing into its
# memory, by which they would escape their job's limits: ours gets a capability that they lack, which is
# otherwise useless (capabilities(7), ptrace(2)). No options if the node does not grant it.
guard=
keeps_out="--inh-caps=+wake_alarm --ambient-caps=+wake_alarm"
# shellcheck disable=SC2086
[ "$(id -u)" != 0 ] || ! timeout 5 setpriv --reuid=65534 --clear-groups $keeps_out --no-new-privs true 2> /dev/null || guard=$keeps_out

# as ACCOUNT SECONDS COMMAND...: runs with that account's rights but without a job's limits, so for
# SECONDS at most. A user's folder may contain anything: a FIFO, a link, millions of names.
as() {
    account=$1 seconds=$2
    shift 2
    if [ "$(id -u)" = 0 ]; then # not on a single-user cluster
        if group=$(id -g "$account" 2> /dev/null); then
            set -- --regid="$group" --init-groups "$@"
        else # the account no longer exists
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

# Removes the job's small files in /tmp, by task_prolog.sh and frameworks/request.py, but not those of a run
# that has begun since. Users may have made any number of names there, but find keeps none in memory.
clean() {
    as "$SLURM_JOB_UID" 60 find "${TMPDIR:-/tmp}" -mindepth 1 -maxdepth 1 -user "$SLURM_JOB_UID" ! -newer "$file.left" \
        \( -name "hops-hosts.$SLURM_JOB_ID.*" -o -name "hops-training.$SLURM_JOB_ID.*" \) -delete
}

# Removes folders of jobs that are no longer here, to which nothing was added for a day. Only root can
# have created them; their owners' rights empty them. Users cannot set the times tested here (ctime).
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
        # A job that came back without a Prolog has only this file here while it runs. Such files take
        # space in /run, which has some 800,000 inodes: if there are 10,000, they are kept for an hour.
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
        # slurmd kills an Epilog's process group when it ends, so wait until the new session exists.
        # shellcheck disable=SC2016
        setsid --wait /bin/sh -c 'cd / && /bin/sh "$0" later &' "$0" < /dev/null > /dev/null 2>&1
    fi
fi
exit 0
