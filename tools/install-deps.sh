#!/bin/bash
# install-deps.sh: installs the Debian packages that are missing, and only those.
#
#   install-deps.sh [--list] PURPOSE…      PURPOSE: build, run, check, bench (tools/packages.list)
#
# Root installs them, another user through sudo; who has neither is told which ones to ask for (exit code 3). When nothing
# is missing it does nothing at all, not even ask for a package list. --list only prints what is missing.
set -euo pipefail

# shellcheck source=lib/common.sh
. "$(dirname "$0")/lib/common.sh"

list=no
if [ "${1:-}" = --list ]; then list=yes; shift; fi
if [ $# = 0 ]; then set -- build run; fi

if ! command -v dpkg-query > /dev/null || ! command -v apt-get > /dev/null; then
    fail "this is not Debian: install what tools/packages.list names by hand and go on with make build"
fi

wanted=$(for purpose in "$@"; do awk -v p="$purpose" '$1 == p { print $2 }' "$tools/packages.list"; done | sort -u)
# A package counts as there when it or one that provides it is installed (nodejs, pkg-config).
missing=$(dpkg-query -W -f '${db:Status-Status}\t${Package}, ${Provides}\n' |
    awk -F '\t' -v wanted="$wanted" '
        BEGIN { n = split(wanted, w, "\n") }
        $1 == "installed" { m = split($2, p, ", *"); for (i = 1; i <= m; i++) { sub(/ .*/, "", p[i]); have[p[i]] = 1 } }
        END { for (i = 1; i <= n; i++) if (!(w[i] in have)) print w[i] }')
if [ $list = yes ]; then
    if [ -n "$missing" ]; then say "$missing"; fi
    exit 0
fi
if [ -z "$missing" ]; then exit 0; fi

as_root=
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo > /dev/null || ! { sudo -n true 2> /dev/null || { [ -t 0 ] && sudo -v; }; }; then
        say "these Debian packages are missing, and only root can install them:" >&2
        say "  apt-get install --no-install-recommends $(echo $missing)" >&2
        exit 3
    fi
    as_root=sudo
fi
count=$(echo "$missing" | wc -l)

update() { $as_root apt-get -q update; }
install_missing() {
    # Lines of the status channel are "dlstatus:…:percent:text" and "pmstatus:…:percent:text".
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Dpkg::Use-Pty=0 --no-install-recommends install $missing
}
step "package lists" update
step "installing $count Debian packages" install_missing
