#!/bin/sh
# Runs $HOPS_PYTHON with the given arguments as a process of an emulated GPU: with priority over all
# other processes if cores are short, and behind the network of its server.
set -e
echo $$ > "$HOPS_DEVICES/cgroup.procs"
export GLOO_SOCKET_IFNAME=eth0 OMP_NUM_THREADS=1
if [ "$1" = -c ]; then
    # The program of hopsctl calibrate gets slurm.conf's addresses, which are all of this machine.
    program=$2
    first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
    shift 3
    set -- -c "$program" "$(cat "$HOPS_EMULATION/address.$first")" "$@"
fi
exec nsenter --net="/run/netns/$HOPS_NETWORK-$SLURMD_NODENAME" "$HOPS_PYTHON" "$@"
