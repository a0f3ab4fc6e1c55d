# apt-private.sh: apt with a source list, lists and cache of its own, so that a package from another suite (backports) can
# be looked up and downloaded while the host's sources and package state stay as they are. Sourced, not run.
#
# It never installs anything and needs no root. It must never write outside the folder that it is given.

# apt_private_init DIR [SUITE…]: DIR gets a source list with the host's own Debian archive: its "main" suites as the host
# has them, and the same archive's SUITEs beside them. Fails when the host has no Debian 12 source at all.
apt_private_init() {
    apt_dir=$1
    shift
    mkdir -p "$apt_dir/lists/partial" "$apt_dir/cache/archives/partial"
    apt_host_sources > "$apt_dir/host-sources"
    if [ ! -s "$apt_dir/host-sources" ]; then
        # apt names its sources only once their lists were brought; bring them into this folder, not into the host's.
        mkdir -p "$apt_dir/host/lists/partial" "$apt_dir/host/cache/archives/partial"
        apt_host="-o Dir::State::Lists=$apt_dir/host/lists -o Dir::Cache=$apt_dir/host/cache -o Debug::NoLocking=1"
        apt-get -q $apt_host -o APT::Sandbox::User=root update >&2 || true
        apt_host_sources $apt_host > "$apt_dir/host-sources"
    fi
    archive=$(awk '$2 == "bookworm" { print $1; exit }' "$apt_dir/host-sources")
    if [ -z "$archive" ]; then
        echo "no source of the Debian 12 (bookworm) archive, component main, in this host's apt configuration" >&2
        return 1
    fi
    keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    signed=
    if [ -r "$keyring" ]; then signed="[signed-by=$keyring] "; fi
    {
        while read -r uri suite; do echo "deb $signed$uri $suite main"; done < "$apt_dir/host-sources"
        for suite in "$@"; do echo "deb $signed$archive $suite main"; done
    } > "$apt_dir/sources.list.new"
    if ! cmp -s "$apt_dir/sources.list.new" "$apt_dir/sources.list"; then
        mv "$apt_dir/sources.list.new" "$apt_dir/sources.list"
        rm -f "$apt_dir/updated"
    else
        rm "$apt_dir/sources.list.new"
    fi
}

# "URI SUITE" of the host's Debian 12 sources. A source may be named by its role ("oldstable"): its codename is taken.
apt_host_sources() {
    apt-get "$@" indextargets --format '$(REPO_URI) $(RELEASE) $(CODENAME) $(COMPONENT)' 'Created-By: Packages' 2>/dev/null |
        awk '$4 == "main" { name = $2 ~ /^bookworm/ ? $2 : $3; if (name ~ /^bookworm(-security|-updates)?$/) print $1, name }' |
        sort -u
}

# apt_private TOOL ARGUMENT…: runs apt-get or apt-cache on the private lists; the host's dpkg status says what is installed.
apt_private() {
    apt_tool=$1
    shift
    "$apt_tool" -q -o Dir::Etc::SourceList="$apt_dir/sources.list" -o Dir::Etc::SourceParts=/nonexistent \
        -o Dir::State::Lists="$apt_dir/lists" -o Dir::Cache="$apt_dir/cache" -o Dir::Cache::archives="$apt_dir/cache/archives" \
        -o Debug::NoLocking=1 -o APT::Sandbox::User=root -o Acquire::Languages=none -o Acquire::Retries=3 "$@"
}

# apt_private_update: brings the lists, at most once a day.
apt_private_update() {
    if [ -n "$(find "$apt_dir/updated" -mmin -1440 2>/dev/null)" ]; then return 0; fi
    apt_private apt-get update >&2
    touch "$apt_dir/updated"
}
