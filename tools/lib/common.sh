# common.sh: what the scripts behind make share: where things lie, and how a step is shown. Sourced by bash scripts.
#
# Everything can be set from outside (make STATE=… CACHE=… LISTEN=…); the defaults depend on who runs it, as those of
# spaced do.
# shellcheck shell=bash

tools=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
repo=$(dirname "$tools")
build=${BUILD:-build}
case $build in /*) ;; *) build=$repo/$build ;; esac
if [ "$(id -u)" = 0 ]; then
    state=${STATE:-/var/lib/space}
    cache=${CACHE:-/var/cache/space}
else
    state=${STATE:-${XDG_DATA_HOME:-$HOME/.local/share}/space}
    cache=${CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/space}
fi
listen=${LISTEN:-127.0.0.1:7777}
qemu=$cache/qemu
logs=$build/logs
template=${TEMPLATE:-base}

if [ -t 1 ] && [ "${TERM:-dumb}" != dumb ] && [ -z "${NO_COLOR:-}" ]; then
    tty=yes bold=$'\e[1m' dim=$'\e[2m' green=$'\e[32m' red=$'\e[31m' plain=$'\e[0m'
else
    tty=no bold= dim= green= red= plain=
fi

now_ms() { local t=${EPOCHREALTIME/./}; echo "${t%???}"; }
seconds() { printf '%d.%d s' $(($1 / 1000)) $(($1 % 1000 / 100)); }
say() { printf '%s\n' "$*"; }
fail() { printf '%s%s%s\n' "$red" "$*" "$plain" >&2; exit 1; }

# step TEXT COMMAND…: runs a step with its output in $logs; shows the text, the newest line of output while it runs (on a
# terminal) and the time that it took. On failure the end of the log is shown and the script ends. Its variables are named
# step_… because a function that is run as COMMAND sees them.
step() {
    local step_text=$1 step_start step_code=0 step_name step_log step_line step_pid step_traps
    shift
    step_name=$(echo "$step_text" | tr -cs 'A-Za-z0-9\n' - | sed 's/^-*//; s/-*$//' | tr A-Z a-z)
    mkdir -p "$logs"
    step_log=$logs/$step_name.log
    step_start=$(now_ms)
    if [ $tty = yes ]; then
        # A process group of its own: an interrupt ends the step with all that it started.
        set -m
        "$@" > "$step_log" 2>&1 < /dev/null &
        step_pid=$!
        set +m
        step_traps=$(trap -p INT TERM)
        trap 'kill -TERM -- "-$step_pid" 2>/dev/null; wait "$step_pid" 2>/dev/null; printf "\n"; exit 130' INT TERM
        while kill -0 "$step_pid" 2> /dev/null; do
            step_line=$(tail -c 300 "$step_log" 2> /dev/null | tr '\r' '\n' | tail -n 1 | tr -dc '[:print:]' | cut -c1-60)
            printf '\r\e[K  … %s %s%s  %s%s' "$step_text" "$dim" "$(seconds $(($(now_ms) - step_start)))" "$step_line" "$plain"
            sleep 0.2
        done
        wait "$step_pid" || step_code=$?
        trap - INT TERM
        eval "$step_traps"
        printf '\r\e[K'
    else
        printf '  … %s\n' "$step_text"
        "$@" > "$step_log" 2>&1 < /dev/null || step_code=$?
    fi
    if [ "$step_code" != 0 ]; then
        printf '  %sfailed%s %s %s\n' "$red" "$plain" "$step_text" "$(seconds $(($(now_ms) - step_start)))"
        tail -n 25 "$step_log" >&2
        say "the whole log: $step_log" >&2
        exit "$step_code"
    fi
    printf '  %sdone%s  %s  %s%s%s\n' "$green" "$plain" "$step_text" "$dim" "$(seconds $(($(now_ms) - step_start)))" "$plain"
}

# root_alone PATH: nobody but root can change PATH or put something else in its place.
root_alone() {
    local path
    path=$(readlink -f "$1") || return 1
    while :; do
        [ "$(stat -c '%u' "$path")" = 0 ] || return 1
        if (($(stat -c '0%a' "$path") & 0022)) && [ ! -k "$path" ]; then return 1; fi
        [ "$path" = / ] && return 0
        path=$(dirname "$path")
    done
}

# programs: sets $spaced and $space. As root, programs of a tree that another user can write are first installed below the
# cache, which is root's: spaced's privileged half refuses to run what somebody else could have changed.
programs() {
    spaced=$build/src/bin/spaced
    space=$build/src/cli/space
    if [ "$(id -u)" = 0 ] && ! root_alone "$build/src/bin/spaced"; then
        spaced=$cache/programs/bin/spaced
        space=$cache/programs/bin/space
        if [ "${1:-}" = install ]; then
            step "installing into $cache/programs" install_programs
        fi
    fi
}
install_programs() {
    rm -rf "$cache/programs" "$cache/programs.new"
    meson install -C "$build" --no-rebuild --quiet --destdir "$cache/programs.new"
    mv "$cache/programs.new$(meson introspect "$build" --buildoptions | python3 -c '
import json, sys
print(next(o["value"] for o in json.load(sys.stdin) if o["name"] == "prefix"))')" "$cache/programs"
    rm -rf "$cache/programs.new"
}

# The daemon that make run started: its pid, if it still runs and is that program.
daemon_pid() {
    local pid
    pid=$(cat "$cache/run/spaced.pid" 2> /dev/null) || return 1
    [ -n "$pid" ] && [ "$(cat "/proc/$pid/comm" 2> /dev/null)" = spaced ] && echo "$pid"
}

# The client, against the platform of these settings.
client() { "$space" --url "http://$listen" --state-dir "$state" "$@"; }
api() { curl -sS --max-time 10 --noproxy '*' "$@"; }

# Machines of this platform, whoever they belong to: a QEMU with the agent's port.
machine_pids() {
    local p
    for p in /proc/[0-9]*; do
        if tr '\0' ' ' < "$p/cmdline" 2> /dev/null | grep -q 'name=space\.agent'; then echo "${p#/proc/}"; fi
    done
}
