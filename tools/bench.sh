#!/bin/bash
# bench.sh: builds, brings QEMU and a root file system, and measures; writes build/bench.json. Runs beside a started platform.
set -euo pipefail

# shellcheck source=lib/common.sh
. "$(dirname "$0")/lib/common.sh"
"$tools/install-deps.sh" build run check bench
"$tools/build.sh" "$build" -- "-j$(nproc)"
if [ ! -x "$qemu/bin/qemu-system-x86_64" ]; then step "fetching QEMU" "$tools/fetch-qemu.sh" "$qemu"; fi
programs
scratch=$(mktemp -d /var/tmp/space-bench-template.XXXXXX)
trap 'rm -rf --one-file-system "$scratch"' EXIT
build_template() { "$tools/template/build-base.sh" --state "$scratch" --cache "$cache/template"; }
step "building the base template" build_template
node "$repo/tests/bench/bench.mjs" --spaced "$spaced" --space "$space" --floor "$build/tests/bench/floor" \
    --qemu "$qemu/bin/qemu-system-x86_64" --qemu-data "$qemu/share" --incoming "$(echo "$scratch"/incoming/base-*)" \
    --out "$build/bench.json"
