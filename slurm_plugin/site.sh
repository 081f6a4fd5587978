# shellcheck shell=sh disable=SC2034
# What prolog.sh, task_prolog.sh and epilog.sh need to know about this site: next to them, or as
# /etc/hops/site.sh. This is a shell file that root reads, so only root may write it.

# Shared by all nodes and hopsd, mode 1733 (jobs may add files, but not list or remove others'); the
# same as report_dir in hopsd.toml. Mount a shared file system here, or name a folder on one.
HOPS_REPORT_DIR=/var/spool/hops/reports

# The folder with the profiler's sitecustomize.py, on every node; if empty, jobs are not measured.
HOPS_PROFILER_PATH=/usr/share/hops/profiler/site

# A job that saved on request exits with this code; the same as RequeueExitHold in slurm.conf.
HOPS_REQUEUE_EXIT_CODE=85

# The number of GPU counts that a range in a comment is reduced to; the same as in hopsd.toml.
HOPS_RANGE_VALUES=8

# A folder local to each node that only root may write to: not hopsd's /run/hops.
HOPS_RUN_DIR=/run/hops-node

# A folder in memory, local to each node and owned by root; prolog.sh creates it. There a job leaves its
# state when it is moved, and epilog.sh has it written to the file system while others use the GPUs. If
# empty, no job does so. Root creates folders for users there, so the site decides: docs/security.md.
# HOPS_STATE_DIR=/dev/shm/hops
HOPS_STATE_DIR=

# Its path, if it is not on slurmd's search path.
HOPS_SCONTROL=scontrol

# apptainer's and singularity's settings, if they are not below /etc or /usr/local/etc. If these turn
# off both overlay and underlay, images without hops' folders run unmeasured.
# HOPS_APPTAINER_CONF=/opt/apptainer/etc/apptainer/apptainer.conf
