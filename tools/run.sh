#!/bin/bash
# run.sh: from a fresh clone to a running platform, and a look at it. A second run does only what is still to be done.
set -euo pipefail

# shellcheck source=lib/common.sh
. "$(dirname "$0")/lib/common.sh"
begin=$(now_ms)

say "${bold}Preparing${plain}"
"$tools/install-deps.sh" build run
"$tools/build.sh" "$build" -- "-j$(nproc)"
programs install
if [ ! -x "$qemu/bin/qemu-system-x86_64" ]; then step "fetching QEMU" "$tools/fetch-qemu.sh" "$qemu"; fi
step "starting spaced" "$tools/start.sh"

if ! client template inspect "$template" > /dev/null 2>&1; then
    say "${bold}Building the template \"$template\"${plain} (once; a few minutes)"
    # The client draws the progress itself.
    client template build "$template" --cache "$cache/template" > /dev/null || fail "the template could not be built"
fi
# A machine in the hot pool is what makes the next create quick; right after the start there may be none yet.
hot_pool() {
    local ready
    for _ in $(seq 100); do
        ready=$(client node --json | python3 -c '
import json, sys
pools = [p for p in json.load(sys.stdin)["pools"] if p["kind"] == "hot"]
print(all(p["ready"] >= min(p["target"], 1) for p in pools))')
        if [ "$ready" = True ]; then return 0; fi
        sleep 0.2
    done
}
step "filling the pool" hot_pool

say "${dim}ready after $(seconds $(($(now_ms) - begin)))${plain}"

exec "$tools/demo.sh"
