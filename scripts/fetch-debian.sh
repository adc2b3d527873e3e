#!/usr/bin/env bash
# Unpacks packages of another release of Debian into a folder, from where this machine has its own: nothing is installed, and
# what they depend on is not fetched. A folder that is complete is left as it is.
#
#   scripts/fetch-debian.sh FOLDER RELEASE[/COMPONENT] ARCHITECTURE PACKAGE...      the component is main, if none is named
#
# Ends with 77 where something cannot be had: its last line says which.
set -euo pipefail
folder=$1 release=$2 architecture=$3
shift 3
without() { echo "$*" >&2; exit 77; }

[ ! -e "$folder/.complete" ] || exit 0
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || without "no apt-get: Debian's $release cannot be had"
mirror() { apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | { grep -v security || true; } | sort -u | head -1; }
mirror=$(mirror)
# A new machine's lists have not been fetched.
[ -n "$mirror" ] || { apt-get update >/dev/null 2>&1 || true; mirror=$(mirror); }
[ -n "$mirror" ] || without "apt-get has no source of packages"
rm -rf "$folder" && mkdir -p "$folder/.apt/lists/partial" "$folder/.apt/archives/partial"
folder=$(realpath "$folder")
case $release in */*) component=${release#*/} release=${release%%/*} ;; *) component=main ;; esac
echo "deb $mirror $release $component" >"$folder/.apt/sources"
apt=(apt-get -o "Dir::Etc::SourceList=$folder/.apt/sources" -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Status=/dev/null
    -o "Dir::State::Lists=$folder/.apt/lists" -o "Dir::Cache=$folder/.apt" -o "APT::Architecture=$architecture"
    -o "APT::Architectures=$architecture" -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false
    -o APT::Sandbox::User=root)
(cd "$folder/.apt" && "${apt[@]}" update && "${apt[@]}" download "$@") >"$folder/.apt/log" 2>&1 ||
    without "Debian's $release for $architecture could not be fetched: $(tail -n 1 "$folder/.apt/log")"
for package in "$folder"/.apt/*.deb; do dpkg-deb -x "$package" "$folder"; done
rm -rf "$folder/.apt" && touch "$folder/.complete"
