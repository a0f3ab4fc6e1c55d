#!/bin/bash
# check.sh: brings what the tests need, builds the variants, runs all tests (tools/check.py) and passes on its verdict.
#
#   check.sh [--only TEXT] [--suite NAME]…
#
# The tests use a state folder, ports and processes of their own; a platform that runs beside them is not touched.
set -euo pipefail

# shellcheck source=lib/common.sh
. "$(dirname "$0")/lib/common.sh"
begin=$(now_ms)

"$tools/install-deps.sh" build run check
"$tools/build.sh" "$build" -- "-j$(nproc)"
"$tools/build.sh" "$build-asan" --asan -- "-j$(nproc)"
if [ -e "$repo/tests/fuzz/meson.build" ]; then "$tools/build.sh" "$build-fuzz" --fuzz -- "-j$(nproc)" fuzz-targets; fi

if [ ! -x "$qemu/bin/qemu-system-x86_64" ]; then step "fetching QEMU" "$tools/fetch-qemu.sh" "$qemu"; fi
export TEST_QEMU=$qemu/bin/qemu-system-x86_64 TEST_QEMU_DATA=$qemu/share

# A template folder as spaced gets it, for the tests of machines; the slow part comes from the cache on a second run.
scratch=$(mktemp -d "/var/tmp/space-check.XXXXXX")
chmod 711 "$scratch" # a daemon without root passes through
trap 'rm -rf --one-file-system "$scratch"' EXIT
trap 'exit 130' INT TERM HUP
if [ -x "$build/src/agent/space-agent" ]; then
    build_template() { "$tools/template/build-base.sh" --state "$scratch" --cache "$cache/template"; }
    step "building the base template" build_template
    TEST_TEMPLATE=$(echo "$scratch"/incoming/base-*)
    export TEST_TEMPLATE
    # A state folder with that template booted and frozen: each test of the server starts from a copy.
    prepare() {
        env SPACE_CACHE="$cache/template" SPACE_BUILD="$build" SPACE_TEST_TMP="$scratch" SPACE_TEST_LOGS="$scratch/logs" \
            SPACE_TEST_QEMU="$TEST_QEMU" SPACE_TEST_QEMU_DATA="$TEST_QEMU_DATA" \
            node "$repo/tests/e2e/prepare.mjs" "$scratch/prepared"
    }
    if [ -e "$repo/tests/e2e/prepare.mjs" ]; then
        mkdir -p "$scratch/logs"
        step "freezing the template for the tests" prepare
        export TEST_STATE=$scratch/prepared
    fi
fi
say "${dim}ready to test after $(seconds $(($(now_ms) - begin)))${plain}"

code=0
"$tools/check.py" "$@" || code=$?
exit "$code"
