#!/bin/bash
# build-base.sh: builds the base template from Debian packages into <state>/incoming/, where spaced takes it over.
#
#   build-base.sh --state DIR [--name base] [--size-mib 2048] [--cache DIR] [--agent FILE] [--modules-list FILE] [--fresh]
#
# Prints, one a line on stdout, for a program to read:
#   @progress STEP DONE TOTAL TEXT   how far STEP (kernel, rootfs, initramfs, manifest) is
#   @result FOLDER                   the last line: the finished folder's name in <state>/incoming/
# What the tools say goes to FOLDER/build.log, and to <state>/incoming/failed.log when the build fails.
# Exit code: 0 built, 1 failed, 2 wrong use, 3 something that the build needs is missing, 130 interrupted.
#
# The folder holds manifest.json, rootfs.raw, vmlinuz, initramfs.img, build.log. It appears by a rename when all of it is
# there; a build that fails or is interrupted leaves nothing, and what a killed one left is removed by the next.
#
# The root file system is the slow part and does not depend on the agent: it is kept in the cache and used again as long as
# the package list, the set-up script, the size and the calendar week are the same. --fresh makes it anew.
set -euo pipefail
umask 077

# Descriptors of whoever called: mmdebstrap hands its own to dash, which knows none above 9.
for fd in /proc/self/fd/*; do
    fd=${fd##*/}
    if [ "$fd" -gt 2 ] && [ "$fd" != 255 ]; then eval "exec $fd>&-"; fi
done

here=$(cd "$(dirname "$0")" && pwd)
usage() { sed -n '2,19s/^# \{0,1\}//p' "$0" >&2; exit 2; }

# first FILE…: the first that exists. The programs lie beside this script when installed, in the build folder otherwise.
first() {
    for file in "$@"; do
        if [ -e "$file" ]; then echo "$file"; return 0; fi
    done
    return 1
}

state= name=base size_mib=2048 cache= agent= modules_list= fresh=no
while [ $# -gt 0 ]; do
    case $1 in
        --fresh) fresh=yes; shift; continue ;;
        --state | --name | --size-mib | --cache | --agent | --modules-list) if [ $# -lt 2 ]; then usage; fi ;;
        *) usage ;;
    esac
    case $1 in
        --state) state=$2 ;;
        --name) name=$2 ;;
        --size-mib) size_mib=$2 ;;
        --cache) cache=$2 ;;
        --agent) agent=$2 ;;
        --modules-list) modules_list=$2 ;;
    esac
    shift 2
done
if [ -z "$state" ] || ! [[ $name =~ ^[a-z0-9][a-z0-9._-]{0,47}$ ]] || ! [[ $size_mib =~ ^[0-9]{3,5}$ ]]; then usage; fi
if [ ! -d "$state" ]; then echo "no state folder $state: start spaced once, or make it" >&2; exit 3; fi
state=$(cd "$state" && pwd)
cache=${cache:-$state/cache}
if [ -z "$agent" ]; then
    agent=$(first "$here/../space-agent" "$here/../../build/src/agent/space-agent") ||
        { echo "the guest agent is not built (space-agent)" >&2; exit 3; }
fi
if [ -z "$modules_list" ]; then
    modules_list=$(first "$here/modules.list" "$here/../../src/agent/modules.list") ||
        { echo "the list of guest kernel modules is missing (modules.list)" >&2; exit 3; }
fi
for tool in mmdebstrap:mmdebstrap mke2fs:e2fsprogs cpio:cpio xz:xz-utils zstd:zstd dpkg-deb:dpkg flock:util-linux; do
    if ! PATH=$PATH:/usr/sbin:/sbin command -v "${tool%%:*}" > /dev/null; then
        echo "${tool%%:*} is missing (Debian package ${tool#*:})" >&2
        exit 3
    fi
done
export PATH=$PATH:/usr/sbin:/sbin

mkdir -p "$state/incoming" "$cache"
exec 9> "$state/incoming/.lock"
if ! flock -n 9; then echo "another template build is at work in $state" >&2; exit 1; fi
# Builds of several state folders may share a cache: one after the other.
exec 7> "$cache/.lock"
if ! flock -n 7; then
    echo "@progress kernel 0 1 waiting for another build that uses $cache"
    flock 7
fi
rm -rf --one-file-system "$state"/incoming/.building-*
staging=$(mktemp -d "$state/incoming/.building-XXXXXX")
log=$staging/build.log
: > "$log"

# Children run in process groups of their own (set -m), so that one signal ends a step with all that it started.
set -m
child=
finish() {
    code=$?
    trap '' INT TERM HUP PIPE
    if [ -n "$child" ] && kill -TERM -- "-$child" 2> /dev/null; then
        for _ in $(seq 100); do
            kill -0 -- "-$child" 2> /dev/null || break
            sleep 0.1
        done
        kill -KILL -- "-$child" 2> /dev/null || true
    fi
    if [ -d "$staging" ]; then
        if [ "$code" -gt 0 ] && [ "$code" -lt 128 ]; then
            code=1
            cp "$log" "$state/incoming/failed.log" 2> /dev/null || true
            { echo "template build failed; the last of $state/incoming/failed.log:"; tail -n 15 "$log"; } >&2
        fi
        rm -rf --one-file-system "$staging"
    fi
    exit "$code"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP PIPE

step() {
    "$@" 2>> "$log" 7>&- 9>&- < /dev/null &
    child=$!
    wait "$child" || { code=$?; if [ "$code" -gt 128 ]; then exit "$code"; else exit 1; fi; }
    child=
}
progress() { echo "@progress $*"; }
sha256() {
    # openssl uses the processor's SHA instructions, Debian's sha256sum does not: 2 s against 15 s for an image.
    if command -v openssl > /dev/null; then openssl dgst -sha256 -r "$1"; else sha256sum "$1"; fi | cut -d' ' -f1
}

progress kernel 0 1 "downloading and unpacking"
step "$here/fetch-kernel.sh" "$cache/kernel" "$cache" >> "$log"
read -r release kernel_version < "$cache/kernel/version"
cp "$cache/kernel/vmlinuz" "$staging/vmlinuz"
progress kernel 1 1 "$release"

recipe=$(cat "$here/packages.list" "$here/setup-root.sh" "$here/make-rootfs.sh" <(echo "$size_mib $(date -u +%G-%V)") |
    sha256sum | cut -c1-16)
kept=$cache/rootfs-$recipe
if [ "$fresh" = yes ]; then rm -rf "$kept"; fi
if [ ! -e "$kept/sha256" ]; then
    mkdir "$staging/rootfs"
    step "$here/make-rootfs.sh" "$staging/rootfs" "$size_mib" "$cache"
    sha256 "$staging/rootfs/rootfs.raw" > "$staging/rootfs/sha256"
    rm -rf "$cache"/rootfs-*
    mv "$staging/rootfs" "$kept"
else
    progress rootfs 100 100 "the root file system of this week is in the cache"
fi
cp --reflink=auto --sparse=always "$kept/rootfs.raw" "$staging/rootfs.raw"

progress initramfs 0 1 "packing the agent and its modules"
step "$here/make-initramfs.sh" "$staging/initramfs.img" "$agent" "$modules_list" "$cache/kernel/modules/lib/modules/$release"
progress initramfs 1 1 "$(stat -c %s "$staging/initramfs.img") bytes"

progress manifest 0 1 "digests"
part() { printf '    "%s": { "size": %s, "sha256": "%s" }' "$1" "$(stat -c %s "$staging/$1")" "$2"; }
{
    printf '{\n  "schema": 1,\n  "name": "%s",\n  "created_at": "%s",\n' "$name" "$(date -u +%Y-%m-%dT%H:%M:%S.000Z)"
    printf '  "kernel": { "release": "%s", "package_version": "%s" },\n' "$release" "$kernel_version"
    printf '  "agent_sha256": "%s",\n  "parts": {\n' "$(sha256 "$agent")"
    part rootfs.raw "$(cat "$kept/sha256")"; printf ',\n'
    part vmlinuz "$(sha256 "$staging/vmlinuz")"; printf ',\n'
    part initramfs.img "$(sha256 "$staging/initramfs.img")"; printf '\n  },\n  "packages": [\n'
    awk '{ printf "%s    { \"name\": \"%s\", \"version\": \"%s\" }", (NR > 1 ? ",\n" : ""), $1, $2 } END { print "" }' "$kept/packages"
    printf '  ]\n}\n'
} > "$staging/manifest.json"
chmod 600 "$staging"/*
if [ "$(id -u)" = 0 ]; then chown -R --reference="$state" "$staging" "$state/incoming"; fi

folder=$name-$(date -u +%Y%m%d-%H%M%S)
while [ -e "$state/incoming/$folder" ]; do folder=$folder.1; done
rm -f "$state/incoming/failed.log"
mv -T "$staging" "$state/incoming/$folder"
progress manifest 1 1 "done"
echo "@result $folder"
