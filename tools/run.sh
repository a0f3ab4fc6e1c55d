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
# The first use of a template's shape makes its pool; a machine that waits in it is what makes the next create quick.
warm_up() {
    local ready
    client run --template "$template" -- true || return 1
    for _ in $(seq 100); do
        ready=$(client node --json | python3 -c '
import json, sys
print(all(p["ready"] >= min(p["target"], 1) for p in json.load(sys.stdin)["pools"] if p["kind"] == "hot"))')
        if [ "$ready" = True ]; then return 0; fi
        sleep 0.2
    done
}
step "warming up" warm_up

say "${dim}ready after $(seconds $(($(now_ms) - begin)))${plain}"

exec "$tools/demo.sh"
