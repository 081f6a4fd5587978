#!/bin/sh
# hops: Epilog (slurm.conf), as root on every node when a job has left it: removes what
# prolog.sh wrote, and notes for an hour that the job was here, for task_prolog.sh. Has what the job
# left in memory written to the file system, and does not wait: the GPUs are free once this ends.
# Always exits 0: an Epilog that fails drains its node.

case ${SLURM_JOB_COMMENT-} in hops:* | *[\;,[:blank:]]hops:*) ;; *) exit 0 ;; esac

PATH=${PATH:+$PATH:}/usr/local/bin:/usr/bin:/bin
HOPS_RUN_DIR=/run/hops-node
HOPS_STATE_DIR=/dev/shm/hops
site=${0%/*}/site.sh
[ -r "$site" ] || site=/etc/hops/site.sh
# shellcheck source=slurm_plugin/site.sh
[ -r "$site" ] && . "$site"

# With the rights of its user. slurmd ends an Epilog's process group with it, so this returns only
# when the writing is in a session of its own.
save() {
    for to in "$1"/*.to; do
        [ -f "$to" ] || continue
        group=$(id -g "$SLURM_JOB_UID") || return 0
        become="setpriv --reuid=$SLURM_JOB_UID --regid=$group --init-groups --no-new-privs"
        [ "$(id -u)" = 0 ] || become= # on a single-user cluster
        # shellcheck disable=SC2016,SC2086
        setsid --wait $become env -i PATH="$PATH" /bin/sh -c 'cd / && /bin/sh "$0" "$1" &' \
            "$scripts/save.sh" "$1" < /dev/null > /dev/null 2>&1
        return 0
    done
    rm -f "$1"/*.spare
}

# What nobody could write within a day: of jobs that are no longer here.
sweep() {
    for old in "$HOPS_STATE_DIR"/*/; do
        name=${old%/} name=${name##*/}
        [ ! -e "$HOPS_RUN_DIR/$name" ] || continue
        find "$old" -mindepth 1 -mmin +1440 -delete
        find "$old" -maxdepth 0 -mmin +1440 -exec rmdir {} + 2> /dev/null
    done
}

scripts=${0%/*}
[ -r "$scripts/save.sh" ] || scripts=/etc/hops
file=$HOPS_RUN_DIR/$SLURM_JOB_ID.${SLURMD_NODENAME-}
# shellcheck source=slurm_plugin/run_dir.sh
if [ -r "${0%/*}/run_dir.sh" ] && . "${0%/*}/run_dir.sh" && only_ours "$HOPS_RUN_DIR"; then
    rm -f "$file"
    find "$HOPS_RUN_DIR" -name '*.left' -mmin +60 -delete
    touch "$file.left"
    if [ -d "$HOPS_STATE_DIR" ] && [ -n "${SLURM_JOB_UID-}" ] && only_ours "$HOPS_STATE_DIR"; then
        save "$HOPS_STATE_DIR/$SLURM_JOB_ID.${SLURMD_NODENAME-}"
        sweep
    fi
fi
exit 0
