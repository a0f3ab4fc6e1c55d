#!/bin/bash
# make-rootfs.sh: makes the base template's root file system from Debian packages.
#
#   make-rootfs.sh OUT SIZE_MIB CACHE
#
# OUT/rootfs.raw (ext4, SIZE_MIB, sparse) and OUT/packages ("name version" a line, sorted). OUT exists and is empty. CACHE
# holds apt's lists. Runs as root, or as an ordinary user who has subordinate ids (mmdebstrap's unshare mode).
# Progress goes to stdout as "@progress STEP DONE TOTAL TEXT", everything that the tools say to stderr.
#
# The caller removes OUT when this fails; what this script itself makes elsewhere (a scratch folder) it removes itself.
set -euo pipefail
umask 022

out=$1
size_mib=$2
cache=$3
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=../lib/apt-private.sh
. "$here/../lib/apt-private.sh"
# shellcheck source=packages.list
packages=$(sed 's/#.*//' "$here/packages.list" | xargs | tr ' ' ',')

progress() { echo "@progress $*"; }

# Which way mmdebstrap can work here, or why it cannot.
choose_mode() {
    if [ "$(id -u)" = 0 ]; then
        if unshare --mount true 2> /dev/null; then mode=root; return 0; fi
        echo "root without the right to make mounts (CAP_SYS_ADMIN) cannot build a root file system" >&2
        return 1
    fi
    user=$(id -un)
    if ! command -v newuidmap > /dev/null || ! command -v newgidmap > /dev/null; then
        echo "without root the root file system is built in a user namespace: package uidmap is missing" >&2
        return 1
    fi
    if ! grep -q "^$user:" /etc/subuid || ! grep -q "^$user:" /etc/subgid; then
        echo "without root the root file system is built in a user namespace: $user has no line in /etc/subuid and" \
            "/etc/subgid (as root: usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $user)" >&2
        return 1
    fi
    if ! unshare --user true 2> /dev/null; then
        echo "without root the root file system is built in a user namespace: this kernel does not let $user make one" >&2
        return 1
    fi
    mode=unshare
}

# Runs a command that may act as root on the files of the new root: directly, or in the user namespace.
as_owner() {
    if [ "$mode" = root ]; then "$@"; else mmdebstrap --unshare-helper "$@"; fi
}

choose_mode
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(date -u -d "$(date -u +%Y-%m-%d)" +%s)}
export LC_ALL=C.UTF-8

# The scratch folder must be reachable by apt's own user and by a namespace's root: a state or home folder is not.
remove_scratch() {
    # What the namespace's root made only it can remove, the folder itself only its owner.
    if [ "$mode" = unshare ]; then as_owner rm -rf --one-file-system "$1/root" "$1/rootfs.raw" || true; fi
    rm -rf --one-file-system "$1"
}
parent=${TEMPLATE_SCRATCH:-/var/tmp}
# A folder whose builder was killed: nobody holds its lock any more, not even a child of that builder.
find "$parent" -maxdepth 1 -name 'space-rootfs.*' -uid "$(id -u)" -mmin +1 | while read -r stale; do
    if flock -n "$stale" true; then remove_scratch "$stale"; fi
done
scratch=$(mktemp -d "$parent/space-rootfs.XXXXXX")
exec 8< "$scratch"
flock 8
trap 'remove_scratch "$scratch"' EXIT
trap 'exit 130' INT TERM HUP
if [ "$mode" = unshare ]; then chmod 1733 "$scratch"; else chmod 711 "$scratch"; fi

apt_private_init "$cache/apt"
count=$(echo "$packages" | tr ',' '\n' | wc -l)
progress rootfs 0 100 "packages: $count and what they need"

# apt's own lines tell how far the installation is; each becomes one progress line at most.
follow() {
    awk -v base=2 -v span=70 '
        { print > "/dev/stderr"; fflush("/dev/stderr") }
        /newly installed/ { for (i = 1; i <= NF; i++) if ($(i + 1) == "newly") total += $i }
        /^(Unpacking|Setting up|Selecting previously)/ {
            if ($1 == "Selecting") next
            seen++; name = $1 == "Unpacking" ? $2 : $3
            if (total < 1) total = 150
            part = seen / (2 * total); if (part > 1) part = 1
            printf "@progress rootfs %d 100 %s %s\n", base + span * part, tolower($1) == "unpacking" ? "unpacking" : "setting up", name
            fflush()
        }'
}

sed -E 's/\[[^]]*\] //' "$apt_dir/sources.list" > "$scratch/sources.list"
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
TMPDIR=$scratch mmdebstrap --mode="$mode" --variant=minbase --format=tar --architectures=amd64 --include="$packages" \
    ${keyring:+--keyring="$keyring"} \
    --aptopt='Acquire::Languages "none"' --aptopt='Acquire::Retries "3"' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --verbose --customize-hook="copy-in '$here/setup-root.sh' /tmp" \
    --customize-hook='chroot "$1" /bin/sh /tmp/setup-root.sh && rm "$1/tmp/setup-root.sh"' \
    --customize-hook='chroot "$1" dpkg-query -W -f "\${Package} \${Version}\n" > "$1/var/lib/space-packages"' \
    --skip=cleanup/reproducible \
    bookworm "$scratch/root.tar" "$scratch/sources.list" 2>&1 8>&- | follow

progress rootfs 75 100 "unpacking the root file system"
as_owner mkdir "$scratch/root"
as_owner tar -C "$scratch/root" --xattrs --xattrs-include='*' --numeric-owner --exclude='./dev/*' -xpf "$scratch/root.tar"
rm -f "$scratch/root.tar"
as_owner sh -c "LC_ALL=C sort '$scratch/root/var/lib/space-packages' && rm '$scratch/root/var/lib/space-packages'" > "$out/packages"

progress rootfs 85 100 "writing the ext4 image"
# The names inside the image come from what is in it, so that the same packages give the same image ids.
seed=$(cat "$out/packages" "$here/setup-root.sh" "$here/packages.list" | sha256sum | cut -c1-32)
uuid=$(echo "$seed" | sed -E 's/^(.{8})(.{4}).(.{3}).(.{3})(.{12})$/\1-\2-4\3-8\4-\5/')
seed2=$(echo "$seed" | sha256sum | cut -c1-32 | sed -E 's/^(.{8})(.{4}).(.{3}).(.{3})(.{12})$/\1-\2-4\3-8\4-\5/')
image=$scratch/rootfs.raw
# Inode tables and the journal are finished now (the file is sparse, they cost nothing): a guest never has to do it later.
# 16 MiB of journal: a sandbox's disk is small and thrown away, the journal is there for captures of a running machine.
as_owner env E2FSPROGS_FAKE_TIME="$SOURCE_DATE_EPOCH" mke2fs -q -F -t ext4 -L space-root -m 0 -b 4096 -I 256 \
    -O metadata_csum,64bit,extent,resize_inode -J size=16 -U "$uuid" \
    -E "hash_seed=$seed2,lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0,nodiscard" \
    -d "$scratch/root" "$image" "${size_mib}M" >&2
if [ "$mode" = unshare ]; then as_owner chmod 644 "$image"; fi
progress rootfs 95 100 "checking the image"
e2fsck -fn "$image" >&2
cp --sparse=always "$image" "$out/rootfs.raw"
progress rootfs 100 100 "root file system ready"
