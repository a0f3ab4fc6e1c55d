#!/bin/bash
# make-initramfs.sh: packs the guest's initramfs: the agent as /init and the kernel modules that it loads.
#
#   make-initramfs.sh OUT AGENT MODULES_LIST MODULES_DIR
#
# OUT: the file to write. AGENT: the static agent. MODULES_LIST: module names, one a line in load order, "#" starts a
# comment. MODULES_DIR: a lib/modules/<version> folder. In the archive /modules/<name>.ko each and /modules/order with the
# names. Uncompressed: it is 2 MB, and a guest that is translated should not spend its boot on inflating it. The same
# inputs give the same bytes. A module that the kernel has built in is left out; one that is nowhere is an error.
set -euo pipefail
umask 022

out=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
agent=$2
list=$3
modules=$4

tree=$(mktemp -d "$out.tree.XXXXXX")
trap 'rm -rf "$tree" "$out.part"' EXIT
trap 'exit 130' INT TERM HUP
chmod 755 "$tree"

mkdir -p "$tree"/{modules,proc,sys,dev,run,tmp,newroot}
install -m 755 "$agent" "$tree/init"
: > "$tree/modules/order"
sed 's/#.*//' "$list" | tr ' \t' '\n' | grep -v '^$' | while read -r name; do
    name=$(basename "${name%.ko}")
    # The kernel treats "-" and "_" in a module's name as one.
    pattern=$(echo "$name" | sed 's/[-_]/[-_]/g')
    file=$(find "$modules/kernel" \( -name "$pattern.ko" -o -name "$pattern.ko.xz" -o -name "$pattern.ko.zst" \) -print -quit)
    if [ -z "$file" ]; then
        if grep -q "/$pattern\.ko" "$modules/modules.builtin"; then continue; fi
        echo "no module \"$name\" in $modules" >&2
        exit 1
    fi
    case $file in
        *.xz) xz -dc "$file" > "$tree/modules/$name.ko" ;;
        *.zst) zstd -qdc "$file" > "$tree/modules/$name.ko" ;;
        *) cp "$file" "$tree/modules/$name.ko" ;;
    esac
    echo "$name.ko" >> "$tree/modules/order"
done

find "$tree" -exec touch -h -d @0 {} +
(cd "$tree" && find . -mindepth 1 -printf '%P\n' | LC_ALL=C sort |
    cpio --quiet --reproducible -o -H newc -R 0:0 > "$out.part")
mv "$out.part" "$out"
