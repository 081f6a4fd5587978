# shellcheck shell=sh disable=SC2034
# What prolog.sh, task_prolog.sh and epilog.sh need to know of this site: next to them, or as
# /etc/hops/site.sh. A shell file, read as root: only root may write it.

# Shared by all nodes and hopsd, mode 1733 (jobs may add files, not list or remove others'); the
# same as report_dir in hopsd.toml. Mount a shared file system here, or name a folder of one there.
HOPS_REPORT_DIR=/var/spool/hops/reports

# The folder with the profiler's sitecustomize.py, on every node; empty: jobs are not measured.
HOPS_PROFILER_PATH=/usr/share/hops/profiler/site

# A job that saved on request ends with this code; the same as RequeueExitHold in slurm.conf.
HOPS_REQUEUE_EXIT_CODE=85

# Number of counts that a range in a comment is reduced to; the same as in hopsd.toml.
HOPS_RANGE_VALUES=8

# Local to each node, root's own and no other account's: not hopsd's /run/hops.
HOPS_RUN_DIR=/run/hops-node

# In memory, local to each node, root's own; prolog.sh makes it. There a job leaves its state when it
# is moved, and epilog.sh has it written to the file system while others have the GPUs. Empty: no job
# does. Root makes folders for users there, so it is the site's choice: docs/security.md.
# HOPS_STATE_DIR=/dev/shm/hops
HOPS_STATE_DIR=

# For when it is not on slurmd's search path.
HOPS_SCONTROL=scontrol

# apptainer's and singularity's settings where they are not below /etc or /usr/local/etc. Where these
# turn off both overlay and underlay, images without hops' folders run unmeasured.
# HOPS_APPTAINER_CONF=/opt/apptainer/etc/apptainer/apptainer.conf
