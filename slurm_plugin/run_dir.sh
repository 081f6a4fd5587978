# shellcheck shell=sh
# hops: whether HOPS_RUN_DIR can be trusted. Read by prolog.sh, epilog.sh and task_prolog.sh.
#
# Root writes there, and what is there reaches the tasks of every user: it has to be root's own
# (or of the one account that runs everything, on a cluster of one user) and in folders of root's
# alone. hopsd's /run/hops is not: its account could have root overwrite any file.

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

# make_ours FOLDER: only_ours, and made if it is missing.
make_ours() {
    [ -e "$1" ] || { only_ours "${1%/*}/" && mkdir -m 755 "$1"; }
    only_ours "$1"
}
