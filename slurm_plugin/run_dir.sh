# shellcheck shell=sh
# hops: whether HOPS_RUN_DIR can be trusted. Read by prolog.sh, epilog.sh and task_prolog.sh.
#
# Root writes there, and what is there reaches the tasks of every user: root must own it (or, on a
# single-user cluster, the account that runs everything), and only root its parent folders. hopsd's
# /run/hops does not qualify: its account could make root overwrite any file.

# only_ours FOLDER: no other account can put, move or replace anything in it.
only_ours() {
    here=$(cd -P -- "$1" 2> /dev/null && pwd -P) || return 1
    me=$(id -u)
    set --
    while [ -n "$here" ]; do
        set -- "$@" "$here"
        here=${here%/*}
    done
    others=$(
        find "$1" -prune \( -perm -020 -o -perm -002 \) &&
            find / "$@" -prune \( ! \( -user 0 -o -user "$me" \) -o \
                \( -perm -020 -o -perm -002 \) ! -perm -1000 \)
    ) && [ -z "$others" ]
}

# make_ours FOLDER: as only_ours, but creates it if it is missing.
make_ours() {
    [ -e "$1" ] || { only_ours "${1%/*}/" && mkdir -m 755 "$1"; }
    only_ours "$1"
}
