#!/bin/bash
# start.sh: starts spaced in the background and waits until it answers. Does nothing when it runs already.
set -euo pipefail

# shellcheck source=lib/common.sh
. "$(dirname "$0")/lib/common.sh"
programs

if pid=$(daemon_pid); then
    say "spaced runs already, pid $pid"
    exit 0
fi
mkdir -p "$cache/run"
chmod 755 "$cache"
log=$cache/run/spaced.log
if [ -s "$log" ]; then mv "$log" "$log.1"; fi

# The daemon gets an environment of its own: a variable SPACE_… of the caller's shell is not meant for it.
env -i PATH="$PATH" HOME="${HOME:-/}" LANG=C.UTF-8 \
    setsid "$spaced" --state-dir "$state" --listen "$listen" \
    --qemu-path "$qemu/bin/qemu-system-x86_64" --qemu-data "$qemu/share" \
    ${SPACED_OPTIONS:-} >> "$log" 2>&1 < /dev/null &
pid=$!
echo "$pid" > "$cache/run/spaced.pid"

for _ in $(seq 300); do
    if ! kill -0 "$pid" 2> /dev/null; then
        rm -f "$cache/run/spaced.pid"
        tail -n 20 "$log" >&2
        fail "spaced ended at start"
    fi
    if [ "$(api -o /dev/null -w '%{http_code}' "http://$listen/readyz" 2> /dev/null)" = 200 ]; then
        say "spaced is ready, pid $pid"
        exit 0
    fi
    sleep 0.1
done
tail -n 20 "$log" >&2
fail "spaced did not get ready within 30 s"
