#!/bin/sh
# Installs vcuda from the files of a release, which lie beside this script: the .deb or the .rpm where that is what the system
# uses, else the archive below a folder.
#
#   ./install.sh [--key PUBLIC_KEY] [--prefix FOLDER]
#
#   --key KEY        refuse files that this minisign key has not signed
#   --prefix FOLDER  unpack the archive below FOLDER, without root (programs in FOLDER/bin)
#
# Exit status: 0 installed; 1 a file is missing, damaged or not signed; 64 wrong use; 69 a tool is missing.
set -eu
key='' prefix=''
while [ $# -gt 0 ]; do
    case $1 in
    --key) key=${2:?--key needs a key} && shift 2 ;;
    --prefix) prefix=${2:?--prefix needs a folder} && shift 2 ;;
    *) echo "install: unknown argument $1; see the head of this script" >&2 && exit 64 ;;
    esac
done
cd "$(dirname "$0")"
fail() { echo "install: $2" >&2 && exit "$1"; }

if [ -n "$key" ]; then
    command -v minisign >/dev/null || fail 69 "no minisign to check the signature with"
    minisign -q -V -P "$key" -m SHA256SUMS >&2 || fail 1 "SHA256SUMS is not signed by $key"
fi
machine=$(uname -m)
case $machine in
x86_64) deb=amd64 ;;
aarch64) deb=arm64 ;;
*) fail 1 "no files for $machine: x86_64 and aarch64 alone" ;;
esac

# Prints the one file of this form after it was checked.
checked() {
    for file in "$@"; do
        [ -f "$file" ] || fail 1 "$file is not beside this script: download it"
        grep " $file\$" SHA256SUMS | sha256sum -c --quiet - >&2 || fail 1 "$file is damaged: download it again"
        echo "$PWD/$file"
        return
    done
}

if [ -n "$prefix" ]; then
    file=$(checked vcuda-[0-9]*-linux-"$machine".tar.gz)
    mkdir -p "$prefix"
    tar -xzf "$file" -C "$prefix" --strip-components=1
    echo "installed below $prefix; try: $prefix/bin/vcuda demo"
    exit 0
fi
[ "$(id -u)" = 0 ] || fail 64 "not root: sudo $0, or --prefix FOLDER"
if command -v dpkg >/dev/null && command -v apt-get >/dev/null; then
    file=$(checked vcuda_*_"$deb".deb)
    apt-get install -y "$file" >&2
elif command -v rpm >/dev/null; then
    file=$(checked vcuda-*."$machine".rpm)
    rpm -U --replacepkgs "$file" >&2
else
    fail 69 "neither apt-get nor rpm: use --prefix"
fi
echo "installed; try: vcuda demo. On a node: systemctl enable --now vcuda-manager"
