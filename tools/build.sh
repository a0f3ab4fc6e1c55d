#!/bin/bash
# build.sh: configures and builds one variant.
#
#   build.sh FOLDER [--asan|--fuzz] [--prefix DIR] [-- NINJA_OPTION…]
set -euo pipefail

# shellcheck source=lib/common.sh
. "$(dirname "$0")/lib/common.sh"

folder=$1
shift
options=(--buildtype=debugoptimized)
setup_env=()
while [ $# -gt 0 ]; do
    case $1 in
        # gcc warns of things that only the sanitizers' own code makes look possible: the plain build is the one without warnings.
        --asan) options+=(-Db_sanitize=address,undefined -Dwerror=false) ;;
        --fuzz) options+=(-Db_sanitize=address,undefined -Db_lundef=false -Dfuzz=true -Dwerror=false); setup_env=(env CC=clang) ;;
        --prefix) options+=("--prefix=$2"); shift ;;
        --) shift; break ;;
        *) fail "build.sh: unknown option $1" ;;
    esac
    shift
done

cd "$repo"
case $folder in /*) ;; *) folder=$repo/$folder ;; esac
configure() {
    if [ -e "$folder/build.ninja" ]; then
        # Options are written again only when they differ: a changed option rebuilds everything.
        local wanted="${options[*]}"
        if [ "$(cat "$folder/.options" 2> /dev/null)" != "$wanted" ]; then "${setup_env[@]}" meson configure "$folder" "${options[@]}"; fi
    else
        "${setup_env[@]}" meson setup "$folder" "${options[@]}"
    fi
    echo "${options[*]}" > "$folder/.options"
}
compile() { ninja -C "$folder" "$@"; }
step "configuring $(basename "$folder")" configure
step "building $(basename "$folder")" compile "$@"
