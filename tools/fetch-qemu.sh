#!/bin/bash
# fetch-qemu.sh: puts QEMU 10 from Debian's backports into a folder of its own, without touching the host's package state.
#
#   fetch-qemu.sh PREFIX [CACHE]
#
# PREFIX/bin/qemu-system-x86_64, PREFIX/bin/qemu-img, PREFIX/lib (libraries that the host lacks), PREFIX/share (the
# firmware that a microvm needs) and PREFIX/VERSION appear together, by a rename, or not at all. docs/decisions/
# qemu-from-backports.md says why. Needs no root; a PREFIX made by root can be written by root alone.
set -euo pipefail
umask 022

if [ $# -lt 1 ]; then
    sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$(dirname "$1")"
prefix=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
cache=${2:-$prefix.cache}
suite=bookworm-backports
# Resolved as dependencies, but of no use to a machine that has no network card, no USB and no desktop.
unwanted='^(ipxe-qemu|qemu-utils|qemu-system-gui|qemu-system-modules-.*|qemu-block-extra|ovmf|cpu-checker)$'

usable() { [ -x "$1/bin/qemu-system-x86_64" ] && "$1/bin/qemu-system-x86_64" --version > /dev/null 2>&1; }

if usable "$prefix"; then
    echo "QEMU $(cat "$prefix/VERSION") is there: $prefix"
    exit 0
fi

# shellcheck source=lib/apt-private.sh
. "$here/lib/apt-private.sh"
work=$(mktemp -d "$prefix.new.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
chmod 755 "$work"

apt_private_init "$cache" "$suite"
apt_private_update
if ! apt_private apt-get -s --no-install-recommends -t "$suite" install qemu-system-x86 > "$work/plan" 2> "$work/plan.err"; then
    cat "$work/plan" "$work/plan.err" >&2
    echo "cannot resolve qemu-system-x86 of $suite on this host" >&2
    exit 1
fi
# The four of QEMU itself are always wanted, also where the host has them installed; of the rest, what the host lacks.
core="qemu-system-x86 qemu-system-common qemu-system-data qemu-utils seabios"
others=$(awk '$1 == "Inst" { print $2 }' "$work/plan" | grep -Ev "$unwanted" | grep -Evx "$(echo "$core" | tr ' ' '|')" || true)
mkdir "$work/debs" "$work/root"
# apt takes "name/suite" only where the suite has the package; -t prefers the suite and falls back to the host's own.
(cd "$work/debs" && apt_private apt-get -t "$suite" download $core $others >&2)
for deb in "$work"/debs/*.deb; do dpkg-deb -x "$deb" "$work/root"; done

out=$work/out
lib=$work/root/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null || echo x86_64-linux-gnu)
mkdir -p "$out/bin" "$out/lib" "$out/share"
cp "$work/root/usr/bin/qemu-system-x86_64" "$work/root/usr/bin/qemu-img" "$out/bin/"
mkdir -p "$work/root/usr/lib" "$work/root/lib"
find "$work/root/usr/lib" "$work/root/lib" -path '*/qemu/*' -prune -o \( -name '*.so' -o -name '*.so.[0-9]*' \) -print |
    while read -r library; do cp -a "$library" "$out/lib/"; done
for module in accel-tcg-x86_64.so hw-core.so; do
    if [ -e "$lib/qemu/$module" ]; then mkdir -p "$out/lib/qemu" && cp "$lib/qemu/$module" "$out/lib/qemu/"; fi
done
for rom in bios-microvm.bin linuxboot_dma.bin linuxboot.bin pvh.bin kvmvapic.bin; do
    found=$(find -L "$work/root/usr/share" "$work/root/usr/lib" -name "$rom" -print -quit)
    if [ -n "$found" ]; then cp -L "$found" "$out/share/$rom"; fi
done
for rom in bios-microvm.bin linuxboot_dma.bin; do
    if [ ! -s "$out/share/$rom" ]; then echo "the firmware $rom is in none of the packages" >&2; exit 1; fi
done

# DT_RPATH, not DT_RUNPATH: it holds for the libraries' own dependencies as well, and for a jail that sets no environment.
for program in "$out"/bin/*; do patchelf --force-rpath --set-rpath '$ORIGIN/../lib' "$program"; done
missing=$(for program in "$out"/bin/*; do ldd "$program"; done | awk '/not found/ { print $1 }' | sort -u)
if [ -n "$missing" ]; then
    echo "libraries that neither the host nor the packages have: $missing" >&2
    exit 1
fi
"$out/bin/qemu-system-x86_64" --version | sed -n '1s/^QEMU emulator version \([^ ]*\).*/\1/p' > "$out/VERSION"
dpkg-deb -f "$work"/debs/qemu-system-x86_*.deb Version > "$out/PACKAGE"
chmod -R u=rwX,go=rX "$out"
rm -rf "$prefix"
mv "$out" "$prefix"
echo "QEMU $(cat "$prefix/VERSION"), $(du -sh "$prefix" | cut -f1): $prefix"
