#!/bin/bash
# fetch-kernel.sh: brings Debian's cloud kernel for the guest: downloaded and unpacked, never installed on the host.
#
#   fetch-kernel.sh OUT CACHE
#
# OUT/vmlinuz, OUT/modules/lib/modules/<version>/… and OUT/version appear together or not at all. CACHE keeps apt's lists and
# the package, so that a second build downloads nothing. Needs no root.
set -euo pipefail
umask 022

out=$1
cache=$2
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=../lib/apt-private.sh
. "$here/../lib/apt-private.sh"

mkdir -p "$(dirname "$out")" "$cache/debs"
work=$(mktemp -d "$out.new.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP

apt_private_init "$cache/apt"
apt_private_update
package=$(apt_private apt-cache depends --no-recommends --no-suggests linux-image-cloud-amd64 |
    awk '$1 == "Depends:" && $2 ~ /^linux-image-.*-cloud-amd64$/ { print $2; exit }')
version=$(apt_private apt-cache policy "${package:?linux-image-cloud-amd64 names no kernel package}" |
    awk '$1 == "Candidate:" { print $2 }')
if [ "$(cut -d' ' -f2 "$out/version" 2> /dev/null)" = "$version" ]; then
    echo "guest kernel $(cat "$out/version") is there"
    exit 0
fi
deb=$cache/debs/${package}_$(echo "$version" | sed 's/:/%3a/g')_amd64.deb
if [ ! -s "$deb" ]; then
    rm -f "$cache/debs/"linux-image-*.deb
    mkdir "$work/download"
    (cd "$work/download" && apt_private apt-get download "$package=$version" >&2)
    mv "$work/download/"*.deb "$deb"
fi
dpkg-deb -x "$deb" "$work/root"

mkdir -p "$work/out/modules/lib"
cp "$work/root/boot/vmlinuz-"* "$work/out/vmlinuz"
mv "$work/root/lib/modules" "$work/out/modules/lib/modules"
release=$(basename "$work/out/modules/lib/modules/"*)
echo "$release $version" > "$work/out/version"
chmod -R u=rwX,go=rX "$work/out"
rm -rf "$out"
mv "$work/out" "$out"
echo "guest kernel $release ($version)"
