#!/bin/sh
# Where a process of an emulated GPU lives: before all others where processors are short, behind
# the network of its server. Runs $HOPS_PYTHON with the given arguments.
set -e
echo $$ > "$HOPS_DEVICES/cgroup.procs"
export GLOO_SOCKET_IFNAME=eth0 OMP_NUM_THREADS=1
if [ "$1" = -c ]; then
    # hopsctl calibrate's program: its servers' addresses are slurm.conf's, all of this machine.
    program=$2
    first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
    shift 3
    set -- -c "$program" "$(cat "$HOPS_EMULATION/address.$first")" "$@"
fi
exec nsenter --net="/run/netns/$HOPS_NETWORK-$SLURMD_NODENAME" "$HOPS_PYTHON" "$@"
