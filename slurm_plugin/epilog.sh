#!/bin/sh
# hops: Epilog (slurm.conf), as root on every node when a job has left it: removes what
# prolog.sh wrote, and notes for an hour that the job was here, for task_prolog.sh. Always exits 0:
# an Epilog that fails drains its node.

case ${SLURM_JOB_COMMENT-} in hops:* | *[\;,[:blank:]]hops:*) ;; *) exit 0 ;; esac

PATH=${PATH:+$PATH:}/usr/local/bin:/usr/bin:/bin
HOPS_RUN_DIR=/run/hops-node
site=${0%/*}/site.sh
[ -r "$site" ] || site=/etc/hops/site.sh
# shellcheck source=slurm_plugin/site.sh
[ -r "$site" ] && . "$site"

file=$HOPS_RUN_DIR/$SLURM_JOB_ID.${SLURMD_NODENAME-}
# shellcheck source=slurm_plugin/run_dir.sh
if [ -r "${0%/*}/run_dir.sh" ] && . "${0%/*}/run_dir.sh" && only_ours "$HOPS_RUN_DIR"; then
    rm -f "$file"
    find "$HOPS_RUN_DIR" -name '*.left' -mmin +60 -delete
    touch "$file.left"
fi
exit 0
