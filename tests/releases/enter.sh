#!/bin/bash
# Run a command as root inside a root folder, with this repository at /src as its folder.
#
# usage: tests/releases/enter.sh ROOT COMMAND [ARGUMENT...]
#
# The command gets namespaces of its own for mounts and processes: however it ends, nothing of it
# stays mounted and none of its daemons stays alive. The environment is empty but for
# proxies and pip's settings. Exit status: the command's.
set -euo pipefail

root=$1
shift
repository=$(cd "$(dirname "$0")/../.." && pwd)
# Not PIP_FIND_LINKS: the folders it names are not inside.
mapfile -d '' -t settings < <(env --null | grep -zE '^(PIP_|[a-zA-Z]+_(proxy|PROXY)=)' |
    grep -zv '^PIP_FIND_LINKS=')

mkdir -p "$root/src"
# shellcheck disable=SC2016
exec unshare --mount --pid --fork --kill-child bash -ec '
    root=$1 repository=$2
    shift 2
    # A mount point, as every root folder is: a task that gets mounts of its own asks for that.
    mount --bind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    mount --bind "$repository" "$root/src"
    # Not exec: as process 1 this shell reaps the daemons that end, which no test would do.
    chroot "$root" "$@" || exit
' enter "$root" "$repository" env --ignore-environment --chdir=/src \
    PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 "${settings[@]}" "$@"
