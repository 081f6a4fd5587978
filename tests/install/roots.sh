#!/bin/bash
# Root folders of a Debian release for the installation's test, and hops' packages built there.
#
# usage: tests/install/roots.sh RELEASE
#   RELEASE: bookworm or trixie. Kept in ~/.cache/hops/install (or HOPS_INSTALL_ROOTS), so that
#   the next run takes minutes less:
#     RELEASE            a site: Slurm, slurmdbd, MariaDB, systemd; nothing of hops
#     RELEASE.build      what an overlay over it adds to build packages
#     RELEASE.debs       packages of this tree
#     RELEASE.archives   what apt fetched for them
#
# exit status: 0 ready, 3 this machine cannot build them
set -euo pipefail

readonly UNABLE=3
readonly SITE=ca-certificates,systemd,systemd-sysv,dbus,python3,sudo,munge,slurmctld,slurmd,slurmdbd,slurm-client,slurm-wlm-basic-plugins,slurm-wlm-mysql-plugin,mariadb-server

release=$1
repository=$(cd "$(dirname "$0")/../.." && pwd)
cache=${HOPS_INSTALL_ROOTS:-${XDG_CACHE_HOME:-$HOME/.cache}/hops/install}
base=$cache/$release

say() { echo "install: $*" >&2; }
give_up() { say "$*"; exit $UNABLE; }

[ "$(id -u)" = 0 ] || give_up "needs root, to enter a root folder"
for tool in debootstrap unshare flock; do
    command -v $tool > /dev/null || give_up "needs $tool (apt-get install debootstrap util-linux)"
done
mkdir -p "$cache" "$base.debs" "$base.archives/partial"
exec 9> "$base.lock"
flock 9

# The machine's way to package servers: names, certificates, pip's settings but for folders of its own.
network_settings() {
    local file
    mkdir -p "$1/etc/apt/apt.conf.d" "$1/etc/ssl/certs"
    for file in /etc/resolv.conf /etc/hosts /etc/pip.conf /etc/ssl/certs/ca-certificates.crt; do
        [ ! -f $file ] || cp --dereference --remove-destination $file "$1$file"
    done
    sed -i '/file:\|find-links/d' "$1/etc/pip.conf" 2> /dev/null || true
    apt-config dump | sed -n '/^Acquire::https\?::.*Proxy /p' > "$1/etc/apt/apt.conf.d/10proxy"
}

build_base() {
    [ ! -d "$base" ] || return 0
    rm -rf --one-file-system "$base.new"
    debootstrap --variant=minbase --include=$SITE "$release" "$base.new" > "$cache/$release.log" ||
        give_up "debootstrap of $release failed, see $cache/$release.log"
    mv "$base.new" "$base"
}

# inside FOLDER COMMAND...: in an overlay over the site whose changes go to FOLDER.
inside() {
    local upper=$1
    shift
    mkdir -p "$upper" "$upper.work" "$upper.root"
    # shellcheck disable=SC2016
    unshare --mount --pid --fork --kill-child bash -ec '
        base=$1 upper=$2 archives=$3
        shift 3
        root=$upper.root
        mount -t overlay -o "lowerdir=$base,upperdir=$upper,workdir=$upper.work" overlay "$root"
        mount -t proc proc "$root/proc"
        mount --rbind /dev "$root/dev"
        mount --bind "$archives" "$root/var/cache/apt/archives"
        chroot "$root" "$@" || exit
    ' inside "$base" "$upper" "$base.archives" env --ignore-environment \
        PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
        PIP_CERT=/etc/ssl/certs/ca-certificates.crt "$@"
}

build_tools() {
    local wanted
    wanted=$(sed -n '/^Build-Depends/,/^$/p' "$repository/debian/control")
    [ "$(cat "$base.build.from" 2> /dev/null)" != "$wanted" ] || return 0
    mkdir -p "$base.build/usr/sbin" "$base.build/etc/dpkg/dpkg.cfg.d" "$base.build/build"
    printf '#!/bin/sh\nexit 101\n' > "$base.build/usr/sbin/policy-rc.d" # no service starts here
    chmod 755 "$base.build/usr/sbin/policy-rc.d"
    echo force-unsafe-io > "$base.build/etc/dpkg/dpkg.cfg.d/unsafe-io"
    network_settings "$base.build"
    cp "$repository/debian/control" "$base.build/build/control"
    inside "$base.build" sh -ec 'apt-get update -qq
        apt-get install -qq -y --no-install-recommends build-essential
        mkdir -p /build/wants/debian && mv /build/control /build/wants/debian
        cd /build/wants && apt-get build-dep -qq -y --no-install-recommends .' > "$cache/$release.log" ||
        give_up "what builds packages does not install, see $cache/$release.log"
    echo "$wanted" > "$base.build.from"
}

# Of what the packages are made: they are built anew only where this changed.
build_packages() {
    local from source=$base.build/build/source
    from=$(cd "$repository" && git ls-files -z --cached --others --exclude-standard -- debian hopsd \
        profiler slurm_plugin systemd migrations conf docs setup.cfg pyproject.toml requirements.lock \
        tests/install/roots.sh |
        xargs -0 sha256sum 2> /dev/null | sha256sum)
    [ "$(cat "$base.debs.from" 2> /dev/null)" != "$from" ] || return 0
    rm -rf "$base.build/build"
    make -s -C "$repository" deb-source FOLDER="$source"
    network_settings "$base.build"
    inside "$base.build" sh -ec 'cd /build/source
        DEB_BUILD_OPTIONS=noautodbgsym dpkg-buildpackage --build=binary --no-sign' \
        > "$cache/$release.log" 2>&1 || { tail -n 20 "$cache/$release.log" >&2; exit 1; }
    rm -f "$base.debs"/*.deb
    cp "$base.build/build"/*.deb "$base.debs"
    # What a site's apt would fetch with them.
    rm -rf "$base.fetch" "$base.fetch.work"
    mkdir -p "$base.fetch/debs"
    network_settings "$base.fetch"
    cp "$base.debs"/*.deb "$base.fetch/debs"
    inside "$base.fetch" sh -ec 'apt-get update -qq
        apt-get install -qq -y --download-only --no-install-recommends postgresql python3-flask \
            python3-prometheus-client /debs/*.deb
        cp -r /var/lib/apt/lists /debs' > "$cache/$release.log"
    rm -rf "$base.lists" && mv "$base.fetch/debs/lists" "$base.lists" # the overlay has whiteouts
    rm -rf "$base.fetch" "$base.fetch.work" "$base.fetch.root"
    echo "$from" > "$base.debs.from"
}

build_base
build_tools
build_packages
say "ready: $base, $(cd "$base.debs" && echo *.deb)"
