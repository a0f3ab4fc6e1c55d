#!/bin/bash
# stop.sh: ends the platform that make run started, with all of its machines, and says so if something is left.
set -euo pipefail

# shellcheck source=lib/common.sh
. "$(dirname "$0")/lib/common.sh"
programs

if ! pid=$(daemon_pid); then
    say "the platform does not run"
    rm -f "$cache/run/spaced.pid"
    exit 0
fi

# Machines outlive the daemon on purpose, so the sandboxes are ended first. A daemon that does not answer is ended anyway.
end_sandboxes() {
    [ -x "$space" ] || return 0
    timeout 60 "$space" --url "http://$listen" --state-dir "$state" kill --all || true
}
end_daemon() {
    kill -TERM "$pid"
    for _ in $(seq 200); do
        kill -0 "$pid" 2> /dev/null || return 0
        sleep 0.1
    done
    kill -KILL "$pid"
}
step "ending the sandboxes" end_sandboxes
step "ending spaced" end_daemon
rm -f "$cache/run/spaced.pid"
