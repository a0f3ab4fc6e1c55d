#!/bin/bash
# purge.sh: removes everything that make run and make check made outside the packages: the platform with its state
# (sandboxes, templates, keys), the caches, QEMU and the build folders.
set -euo pipefail

# shellcheck source=lib/common.sh
. "$(dirname "$0")/lib/common.sh"

if [ -z "${FORCE:-}" ]; then
    say "this removes:"
    for folder in "$state" "$cache" "$build" "$build-asan" "$build-fuzz"; do
        if [ -e "$folder" ]; then say "  $folder  ($(du -sh "$folder" 2> /dev/null | cut -f1))"; fi
    done
    if [ ! -t 0 ]; then fail "not asked on a terminal: say FORCE=1"; fi
    read -r -p "type yes to go on: " answer
    if [ "$answer" != yes ]; then fail "nothing removed"; fi
fi
"$tools/stop.sh"
# Only what looks like a state folder is removed: a wrong STATE= must not cost somebody a folder of theirs.
if [ -d "$state" ]; then
    if [ -e "$state/space.db" ] || [ -d "$state/templates" ] || [ -d "$state/incoming" ] || [ -z "$(ls -A "$state")" ]; then
        rm -rf --one-file-system "$state"
    else
        fail "$state does not look like a state folder, nothing removed"
    fi
fi
if [ -d "$cache" ] && { [ -d "$cache/qemu" ] || [ -d "$cache/template" ] || [ -d "$cache/run" ]; }; then
    rm -rf --one-file-system "$cache"
fi
rm -rf "$build" "$build-asan" "$build-fuzz"
say "removed"
