# shellcheck shell=sh
# hops: checks whether HOPS_RUN_DIR and HOPS_STATE_DIR can be trusted. Read by prolog.sh, epilog.sh and task_prolog.sh.
#
# Root writes there, and the files reach the tasks of every user. So root must own the folder and its
# parents (on a single-user cluster, the account that runs everything may). hopsd's /run/hops does not
# qualify: its account could make root overwrite any file.

# only_ours_move FOLDER: whether no other account can replace the folder by another. Links on the way to
# it are checked, too: in a folder like /dev/shm anyone may make one.
only_ours_move() {
    here=$(cd -P -- "$1" 2> /dev/null && pwd -P) || return 1
    there=${1%/}
    me=$(id -u)
    set --
    while [ -n "$here" ]; do
        set -- "$@" "$here"
        here=${here%/*}
    done
    while [ -n "$there" ]; do
        set -- "$@" "$there"
        case $there in /*) there=${there%/*} ;; *) return 1 ;; esac
    done
    others=$(
        find / "$@" -prune \( ! \( -user 0 -o -user "$me" \) -o \
            ! -type l \( -perm -020 -o -perm -002 \) ! -perm -1000 \)
    ) && [ -z "$others" ]
}

# only_ours FOLDER: whether, in addition, no other account can create, move or replace anything in it,
# and it is not a link itself.
only_ours() {
    [ -d "$1" ] && [ ! -L "${1%/}" ] &&
        [ -z "$(find "$1" -prune \( -perm -020 -o -perm -002 \))" ] && only_ours_move "$1"
}

# make_ours FOLDER: as only_ours, but creates a missing folder, as root may even in /dev/shm.
make_ours() {
    [ -e "$1" ] || [ -L "$1" ] || { only_ours_move "${1%/*}/" && mkdir -m 755 -- "$1"; }
    only_ours "$1"
}
