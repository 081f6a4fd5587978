#!/bin/bash
# Build a root folder of a Debian suite with its Slurm and what hops' tests need.
#
# usage: tests/releases/build.sh SUITE [ROOT]
#   SUITE: forky (Slurm 26.05, with pyslurm) or trixie (Slurm 24.11, for which the package index
#     has no pyslurm).
#   ROOT: else ~/.cache/hops/releases/SUITE, which outlives a clone, so the next run is instant.
#     Remove the folder to get the suite's latest Slurm.
#   HOPS_DEBIAN_MIRROR: where apt's own configuration names no Debian mirror.
#
# Idempotent: each of the three layers (system, pyslurm, venv) is redone only when what it was
# made from changed. Mounts and processes live in namespaces of their own and end with the script.
#
# exit status: 0 ready, 3 this machine cannot build it, 4 pyslurm does not build against the
# suite's Slurm (the last lines on stderr name the versions)
set -euo pipefail

readonly UNABLE=3 UNBUILDABLE=4
readonly PACKAGES="slurmctld slurmd slurm-client slurm-wlm-basic-plugins libslurm-dev munge
    python3-venv python3-dev gcc lua5.4"

here=$(cd "$(dirname "$0")" && pwd)
repository=$(cd "$here/../.." && pwd)
suite=${1:?usage: build.sh SUITE [ROOT]}
root=${2:-${XDG_CACHE_HOME:-$HOME/.cache}/hops/releases/$suite}

case $suite in
    forky)
        pyslurm="pyslurm>=25.11"
        # Slurm 26.05 identifies jobs by slurm_step_id_t; its header keeps the older signatures
        # behind SLURM_BACKWARD_COMPAT. The two names that it dropped without one have these
        # successors.
        compatibility="-DSLURM_BACKWARD_COMPAT -Dslurm_free_ctl_conf=slurm_free_conf"
        compatibility+=" -DESLURM_ERROR_ON_DESC_TO_RECORD_COPY=ESLURM_INTERNAL"
        ;;
    trixie) pyslurm= compatibility= ;;
    *) echo "$suite: choose forky or trixie" >&2; exit 2 ;;
esac

say() { echo "$suite: $*" >&2; }
give_up() { say "$2"; exit "$1"; }
made_from() { [ "$(cat "$root/opt/hops/$1.from" 2>/dev/null)" = "$2" ]; }
remember() { echo "$2" > "$root/opt/hops/$1.from"; }
inside() { "$here/enter.sh" "$root" "$@"; }

check_machine() {
    [ "$(id -u)" = 0 ] || give_up $UNABLE "needs root, to enter a root folder and make device nodes"
    local tool
    for tool in debootstrap unshare flock; do
        command -v "$tool" > /dev/null ||
            give_up $UNABLE "needs $tool (apt-get install debootstrap util-linux)"
    done
}

mirror() {
    local codename site
    # shellcheck disable=SC1091
    codename=$(. /etc/os-release && [ "$ID" = debian ] && echo "$VERSION_CODENAME") || codename=none
    # shellcheck disable=SC2016
    site=$(apt-get indextargets --format '$(SITE) $(RELEASE)' 'Created-By: Packages' |
        awk -v release="$codename" '$2 == release { print $1; exit }')
    site=${HOPS_DEBIAN_MIRROR:-$site}
    [ -n "$site" ] ||
        give_up $UNABLE "apt's configuration names no Debian mirror: set HOPS_DEBIAN_MIRROR"
    echo "$site"
}

# The machine's way to the package servers: names, certificates, proxies, pip's settings.
copy_network_settings() {
    local to=$1 file
    for file in /etc/resolv.conf /etc/hosts /etc/pip.conf "${PIP_CERT:-}" \
        /etc/ssl/certs/ca-certificates.crt; do
        [ -f "$file" ] || continue
        mkdir -p "$to$(dirname "$file")"
        cp --dereference --remove-destination "$file" "$to$file"
    done
    apt-config dump | sed -n '/^Acquire::https\?::.*Proxy /p' > "$to/etc/apt/apt.conf.d/10proxy"
}

build_system() {
    made_from system "$suite $PACKAGES" && return
    local partial="$root.partial" script="/usr/share/debootstrap/scripts/$suite"
    # debootstrap learns a suite's name years after the suite exists; all since sid are alike.
    [ -e "$script" ] || script=/usr/share/debootstrap/scripts/sid
    local site
    site=$(mirror)
    [ ! -e "$root" ] || [ -d "$root/opt/hops" ] || give_up $UNABLE "$root is there, and not ours"
    rm -rf --one-file-system "$partial" "$root"
    debootstrap --variant=minbase "$suite" "$partial" "$site" "$script" ||
        give_up $UNABLE "debootstrap of $suite failed"
    printf '#!/bin/sh\nexit 101\n' > "$partial/usr/sbin/policy-rc.d" # no service starts in here
    chmod 755 "$partial/usr/sbin/policy-rc.d"
    echo force-unsafe-io > "$partial/etc/dpkg/dpkg.cfg.d/unsafe-io"
    # A mirror may lag behind the week that a testing suite's index is valid for.
    printf 'Acquire::Check-Valid-Until "false";\nAcquire::Languages "none";\n' \
        > "$partial/etc/apt/apt.conf.d/20hops"
    copy_network_settings "$partial"
    # shellcheck disable=SC2086
    "$here/enter.sh" "$partial" env DEBIAN_FRONTEND=noninteractive sh -ec 'apt-get update --quiet
        apt-get install --quiet --yes --no-install-recommends "$@"
        apt-get clean' install $PACKAGES ||
        give_up $UNABLE "Slurm's packages do not install in $suite"
    mkdir -p "$partial/opt/hops"
    mv "$partial" "$root"
    remember system "$suite $PACKAGES"
}

slurm_version() { inside slurmctld -V | awk '{ print $2 }'; }

# pyslurm compiles only against the Slurm release it is numbered after. This folder stands in
# front of Slurm's headers and answers that check, which reads text; what is compiled stays.
write_version_gate() {
    local major=$1 minor=$2
    mkdir -p "$root/opt/hops/include/slurm"
    {
        echo '#include_next <slurm/slurm_version.h>'
        echo '#if 0'
        printf '#define SLURM_VERSION_NUMBER 0x%02x%02x00\n' "$major" "$minor"
        echo '#endif'
    } > "$root/opt/hops/include/slurm/slurm_version.h"
}

fetch_pyslurm() {
    inside sh -ec 'rm -rf /opt/hops/sdist /opt/hops/build
        python3 -m venv /opt/hops/build
        /opt/hops/build/bin/pip download --quiet --no-deps --no-binary pyslurm \
            --dest /opt/hops/sdist "$1"' fetch "$pyslurm" ||
        give_up $UNABLE "pyslurm's source cannot be fetched"
    local version
    version=$(cd "$root/opt/hops/sdist" && echo pyslurm-*.tar.gz)
    version=${version#pyslurm-}
    echo "${version%.tar.gz}" > "$root/opt/hops/pyslurm.version"
}

pyslurm_version() { cat "$root/opt/hops/pyslurm.version"; }

compile_pyslurm() {
    local libraries
    libraries=$(inside sh -c 'dirname /usr/lib/*/slurm-wlm/libslurmfull.so')
    printf '[build_ext]\nparallel = %s\n' "$(nproc)" > "$root/opt/hops/distutils.cfg"
    rm -rf "$root/opt/hops/wheel"
    # -O0: compiles in a third of the time, and nothing in here is measured.
    inside env SLURM_INCLUDE_DIR=/opt/hops/include SLURM_LIB_DIR="$libraries" \
        PYSLURM_BUILD_JOBS="$(nproc)" DIST_EXTRA_CONFIG=/opt/hops/distutils.cfg \
        CFLAGS="-O0 -g0 $compatibility" /opt/hops/build/bin/pip wheel --verbose --no-deps \
        --wheel-dir /opt/hops/wheel "/opt/hops/sdist/pyslurm-$(pyslurm_version).tar.gz"
}

build_pyslurm() {
    local from major minor log="$root/opt/hops/pyslurm.log"
    if [ -z "$pyslurm" ]; then
        made_from pyslurm none || remember pyslurm none
        return
    fi
    from="$(slurm_version) $(inside python3 --version) $compatibility"
    made_from pyslurm "$from" && return
    fetch_pyslurm
    IFS=. read -r major minor _ <<< "$(pyslurm_version)"
    write_version_gate "$major" "${minor#0}"
    if ! compile_pyslurm > "$log" 2>&1; then
        grep -E 'error|Error' "$log" | tail -n 20 >&2 || true
        say "the whole log: $log"
        give_up $UNBUILDABLE "pyslurm $(pyslurm_version) does not build against Slurm \
$(slurm_version) with $(inside python3 --version) of Debian $suite"
    fi
    remember pyslurm "$from"
}

requirements() {
    sed -n '/^install_requires/,/^$/p; /^dev =/,/^[a-z]* =/p' "$repository/setup.cfg" |
        sed -n 's/^    \([A-Za-z].*\)/\1/p' | grep -vE '^(mypy|ruff|types-)'
}

# hops itself is run from /src, where the repository is mounted, and not copied.
install_hops() {
    local packages program
    packages=$(inside /venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    echo /src > "$root$packages/hops.pth"
    for program in hopsctl:hopsd.ctl hopsd:hopsd.__main__; do
        printf '#!/venv/bin/python\nimport sys\nfrom %s import main\nsys.exit(main())\n' \
            "${program#*:}" > "$root/venv/bin/${program%:*}"
        chmod 755 "$root/venv/bin/${program%:*}"
    done
}

build_venv() {
    local from
    from="$(cat "$root/opt/hops/pyslurm.from") $(requirements | tr '\n' ' ')"
    made_from venv "$from" && return
    requirements > "$root/opt/hops/requirements.txt"
    inside sh -ec 'rm -rf /venv; python3 -m venv /venv
        for wheel in /opt/hops/wheel/*.whl; do [ ! -e "$wheel" ] || set -- "$wheel"; done
        /venv/bin/pip install --quiet -r /opt/hops/requirements.txt "$@"' install ||
        give_up $UNABLE "hops' dependencies do not install for $(inside python3 --version)"
    install_hops
    remember venv "$from"
}

check_machine
mkdir -p "$(dirname "$root")"
exec 9> "$root.lock"
flock 9
build_system
copy_network_settings "$root"
build_pyslurm
build_venv
say "ready: $root has Slurm $(slurm_version)${pyslurm:+, pyslurm $(pyslurm_version)}," \
    "$(inside python3 --version)"
