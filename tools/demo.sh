#!/bin/bash
# demo.sh: a sandbox of its own for a newcomer's first minute: create, Python, a pipeline, a file, with the time of each.
set -euo pipefail

# shellcheck source=lib/common.sh
. "$(dirname "$0")/lib/common.sh"
programs

# timed TEXT COMMAND…: shows the command's output as it comes, then the time.
timed() {
    local text=$1 start code=0
    shift
    start=$(now_ms)
    say "$bold$text$plain"
    "$@" || code=$?
    if [ "$code" != 0 ]; then fail "  that failed (exit code $code)"; fi
    say "  $dim$(($(now_ms) - start)) ms$plain"
}
indent() { sed -u 's/^/  | /'; }

say
say "The API: http://$listen    its key: $state/admin.key    the log: $cache/run/spaced.log"
say

create() { sandbox=$(client create --template "$template" --timeout 1h --quiet) && say "  $sandbox"; }
timed "A sandbox, a microVM of its own:" create

python() {
    client exec "$sandbox" -- python3 -u -c '
import os, platform, time
print("Python", platform.python_version(), "on Linux", platform.release())
for n in range(1, 4):
    print("line", n, "of", os.uname().nodename, flush=True)
    time.sleep(0.2)' | indent
}
timed "A Python program, its output as it comes:" python

pipeline() { client exec "$sandbox" -- sh -c 'seq 1 100000 | grep 7 | sort -rn | head -n 3; whoami; uname -r' | indent; }
timed "A shell pipeline:" pipeline

file() {
    local text="written $(date -u +%FT%TZ)"
    echo "$text" | client cp - "$sandbox:/home/user/note.txt" &&
        client cp "$sandbox:/home/user/note.txt" - | indent &&
        [ "$(client cp "$sandbox:/home/user/note.txt" -)" = "$text" ]
}
timed "A file, written and read back:" file

again() { client run --template "$template" -- python3 -c 'print(6 * 7)' | indent; }
timed "Create, run and remove in one command:" again

command=$space
case ":$PATH:" in *":$(dirname "$space"):"*) command=space ;; esac
cat <<TEXT

The platform goes on running. What to try next:
  $command shell $sandbox
  $command ls
  $command run -- python3 -c 'print("hello")'
  curl -H "Authorization: Bearer \$(cat $state/admin.key)" http://$listen/v1/sandboxes
  make stop          ends it with all of its sandboxes
TEXT
