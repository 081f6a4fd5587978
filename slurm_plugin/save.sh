#!/bin/sh
# hops: run as a job's user after the job's end on a node: writes what the job has left in FOLDER, in
# the node's memory, to the file system. epilog.sh starts it and does not wait. See
# profiler/checkpoint/memory.py and target.py: each TOKEN.to names the checkpoint of TOKEN.state.
#
# usage: save.sh FOLDER

# is_memory STATE FOLDER: whether STATE is a file, or a folder of files, that occupies as much memory as
# its size says, and FOLDER is on another device. This process is outside of the job's limits, so it must
# not fill memory that the job could not.
is_memory() {
    [ -e "$1" ] && [ "$(stat -c %d -- "$1")" != "$(stat -c %d -- "$2")" ] &&
        [ -z "$(find "$1" ! -type f ! -type d -print -quit)" ] &&
        find "$1" -type f -printf '%b %s\n' | awk '512 * $1 < $2 { exit 1 }'
}

# Writes the folder $state into $coming, and renames that to $final. A run that gives up waiting renames
# $coming, and nothing with that name is created again. Modes are as the job set them by its own umask.
publish_folder() {
    [ ! -e "$final" ] || return 1
    (umask 0 && cd "$coming" && cp -r --no-dereference -- "$state/." . && find . -exec sync -- {} +) 2> /dev/null &&
        mv -T -- "$coming" "$final" && sync -- "$folder" && return
    # A run that gave up has renamed and removed $coming, except what was written meanwhile.
    rm -rf -- "${coming%.coming}.late"
    return 1
}

# Writes $state, the save $token, to where $to says. Succeeds if $state need not be kept.
publish() {
    IFS= read -r final < "$to" || return 1
    case $final in /*) ;; *) return 1 ;; esac
    folder=${final%/*}/ name=${final##*/}
    coming=$folder.$name.$token.coming
    # Without $coming, the save has been published, or a run has given up waiting for it.
    if [ -d "$folder" ] && [ ! -e "$coming" ]; then return 0; fi
    is_memory "$state" "$folder" || return 1
    if [ -d "$state" ]; then
        publish_folder
        return
    fi
    dd if="$state" of="$coming" bs=8M iflag=nofollow,nonblock oflag=nofollow,nonblock \
        conv=fsync,nocreat 2> /dev/null || return 1
    for other in "$folder.$name."*.coming; do
        [ "$other" = "$coming" ] && break # sorted by number: those before are older
        rm -f -- "$other"
    done
    mv -fT -- "$coming" "$final" && sync -- "$folder"
}

LC_ALL=C
export LC_ALL
spares=$(find "${1:?usage: save.sh FOLDER}" -maxdepth 1 \( -name '*.spare' -o -name '*.made' \))
for to in "$1"/*.to; do
    [ -f "$to" ] && [ ! -L "$to" ] || continue
    token=${to##*/} token=${token%.to}
    state=${to%.to}.state
    # One process at a time writes a save.
    (flock -n 9 || exit 0; if publish; then rm -rf -- "$to" "$state"; fi) 9< "$to"
done
# Spares that the job's next run here has made since are not in this list.
printf '%s\n' "$spares" | while IFS= read -r spare; do rm -rf -- "$spare"; done
