#!/bin/bash
# stop.sh: ends the platform that make run started, with all of its machines, and says so if something is left: then its
# exit code is 1.
set -euo pipefail

# shellcheck source=lib/common.sh
. "$(dirname "$0")/lib/common.sh"
programs

# SIGUSR1: every sandbox ends, whichever project it is of, then every machine, then the daemon.
end_daemon() {
    kill -USR1 "$1"
    for _ in $(seq 600); do
        kill -0 "$1" 2> /dev/null || return 0
        sleep 0.1
    done
    echo "it did not end within 60 s"
    kill -KILL "$1"
}

# What is left of this platform, one a line: processes, cgroups, folders. Nothing when all is gone.
left() {
    local base first last p uid folder
    base=$("$spaced" --show-config --state-dir "$state" | sed -n 's/^uid_base = //p')
    first=$((base + 1)) last=$((base + 16386))
    for p in /proc/[0-9]*; do
        { tr '\0' ' ' < "$p/cmdline"; } 2> /dev/null | grep -q -- "-name space-$base-" || continue
        uid=$(sed -n 's/^Uid:\t\([0-9]*\).*/\1/p' "$p/status" 2> /dev/null) || continue
        if [ "$(id -u)" = 0 ]; then
            if [ "${uid:-0}" -lt $first ] || [ "$uid" -gt $last ]; then continue; fi
        elif [ "$uid" != "$(id -u)" ]; then continue; fi
        echo "process ${p#/proc/}: a machine"
    done
    if [ "$(id -u)" = 0 ]; then
        find /sys/fs/cgroup -maxdepth 8 -type d -path '*/space/*' 2> /dev/null | while read -r folder; do
            uid=${folder##*/}
            if [[ $uid =~ ^[0-9]+$ ]] && [ "$uid" -ge $first ] && [ "$uid" -le $last ]; then echo "cgroup $folder"; fi
        done
    fi
    { find "$state/machines" "$state/sandboxes" -mindepth 1 -maxdepth 1 2> /dev/null || true; } | sed 's/^/folder /'
}

if pid=$(daemon_pid); then
    step "ending spaced and its machines" end_daemon "$pid"
else
    say "the platform does not run"
fi
rm -f "$cache/run/spaced.pid"
if [ ! -x "$spaced" ] || [ ! -d "$state" ]; then exit 0; fi

# A daemon that was killed leaves its machines to the next one: here that one does nothing but end them.
end_left() {
    env -i PATH="$PATH" HOME="${HOME:-/}" LANG=C.UTF-8 timeout -s KILL 120 "$spaced" --state-dir "$state" \
        --qemu-path "$qemu/bin/qemu-system-x86_64" --qemu-data "$qemu/share" --stop-machines
}
if [ -n "$(left)" ]; then
    step "ending what an earlier spaced has left" end_left
    rest=$(left)
    if [ -n "$rest" ]; then fail "left: $rest"; fi
fi
