#!/usr/bin/env bash
# Fetches from package registries what the tests use beyond the toolchain; what cannot be had is a line "SKIPPED ...", with the
# reason, and the tests do without it.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
mkdir -p target
have() {
    case $1 in
    golang-*) [ -e /usr/share/containers/seccomp.json ] ;;
    musl-tools) command -v musl-gcc >/dev/null ;;
    bubblewrap) command -v bwrap >/dev/null ;;
    lib*) dpkg -s "$1" >/dev/null 2>&1 ;;
    *) command -v "$1" >/dev/null ;;
    esac
}
missing=()
for package in runc podman strace golang-github-containers-common musl-tools \
    libjemalloc2 libtcmalloc-minimal4 libeatmydata1 faketime bubblewrap busybox lua5.4 tcc fakeroot rpm help2man minisign; do
    have $package || missing+=("$package")
done
# One after the other if all together cannot be had: each that is missing is named.
install() { DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" >>target/apt.log 2>&1; }
if [ ${#missing[@]} != 0 ] && [ "$(id -u)" = 0 ]; then
    apt-get update >target/apt.log 2>&1
    install "${missing[@]}" || for package in "${missing[@]}"; do install "$package"; done
fi
for package in "${missing[@]}"; do
    have "$package" || echo "SKIPPED $package: not installed and apt-get could not (target/apt.log)"
done
scripts/fetch-clients.sh || echo "SKIPPED some clients: see target/fetch-tests.log"
# NVIDIA's own driver libraries, without a GPU.
scripts/fetch-binaries.sh || echo "SKIPPED some real binaries: see target/fetch-tests.log"
# The schema of CDI specifications, of the version that vcuda writes.
scripts/fetch-debian.sh "${CARGO_TARGET_DIR:-target}/cdi-schema" bookworm "$(dpkg --print-architecture)" \
    golang-github-container-orchestrated-devices-container-device-interface-dev || echo "CDI's schema was not fetched"
# Debian 12's containerd reads no CDI specifications. Unpacked, not installed; the tests say, and count, what they do without.
for release in trixie sid; do
    scripts/fetch-debian.sh "${CARGO_TARGET_DIR:-target}/containerd/$release" $release "$(dpkg --print-architecture)" containerd ||
        echo "containerd of Debian's $release was not fetched"
done
echo "fetched what can be had"
