#!/usr/bin/env bash
# Runs every test of the project: needs git, a C compiler, Python 3 and the Rust toolchain; no GPU. What the tests use
# beyond that is fetched from package registries; what cannot be had is skipped, with the reason, and counted.
# scripts/soak.sh holds the long proofs.
set -euo pipefail
cd "$(dirname "$0")/.."
started=$SECONDS
mkdir -p target
export VCUDA_TEST_SKIPS="$PWD/target/skipped.txt"
: >"$VCUDA_TEST_SKIPS"
skip() { echo "SKIPPED $*" | tee -a "$VCUDA_TEST_SKIPS"; }
step() { printf '\n== %s (%d s)\n' "$*" $((SECONDS - started)); }

step "build"
VCUDA_TEST_BUILD=$(scripts/build-tests.sh)
export VCUDA_TEST_BUILD

step "clients from PyPI, real drivers from Debian"
scripts/fetch-clients.sh || skip "some clients: see above"
# NVIDIA's own driver libraries, without a GPU.
scripts/fetch-binaries.sh || skip "some real binaries: see above"

step "container runtime, its filter of system calls, strace, another C library, some ordinary programs"
have() {
    case $1 in
    golang-*) [ -e /usr/share/containers/seccomp.json ] ;;
    musl-tools) command -v musl-gcc >/dev/null ;;
    bubblewrap) command -v bwrap >/dev/null ;;
    lib*) dpkg -s "$1" >/dev/null 2>&1 ;;
    *) command -v "$1" >/dev/null ;;
    esac
}
for package in runc podman strace golang-github-containers-common musl-tools \
    libjemalloc2 libtcmalloc-minimal4 libeatmydata1 faketime bubblewrap busybox lua5.4 tcc fakeroot rpm help2man minisign; do
    have $package || { [ "$(id -u)" = 0 ] && { apt-get update && apt-get install -y --no-install-recommends $package; } >target/apt.log 2>&1; } ||
        skip "$package: not installed and apt-get could not (target/apt.log)"
done

# Debian 12's reads no CDI specifications. Unpacked, not installed; the tests say, and count, what they do without.
for release in trixie sid; do
    scripts/fetch-debian.sh "${CARGO_TARGET_DIR:-target}/containerd/$release" $release "$(dpkg --print-architecture)" containerd ||
        echo "containerd of Debian's $release was not fetched: see above"
done

step "the built library and the crate edges"
scripts/check-deps.sh
scripts/check-shim.sh

step "the Helm chart, the examples, the smoke test, the packages, the systemd units"
chart=0
scripts/chart.sh "$VCUDA_TEST_BUILD" >target/chart.log 2>&1 || chart=$?
case $chart in
0) tail -n 1 target/chart.log ;;
77) skip "the Helm chart: $(tail -n 1 target/chart.log)" ;;
*) cat target/chart.log && exit 1 ;;
esac

scripts/check-smoke.sh

packages=0
scripts/check-packages.sh "$VCUDA_TEST_BUILD" >target/packages.log 2>&1 || packages=$?
case $packages in
0) grep "^check-packages:" target/packages.log ;;
77) skip "the packages: $(tail -n 1 target/packages.log)" ;;
*) cat target/packages.log && exit 1 ;;
esac

for units in check-unit.sh run-units.sh; do
    unit=0
    scripts/$units "$VCUDA_TEST_BUILD" >target/unit.log 2>&1 || unit=$?
    case $unit in
    0) tail -n 1 target/unit.log ;;
    77) skip "the systemd units: $(tail -n 1 target/unit.log)" ;;
    *) cat target/unit.log && exit 1 ;;
    esac
done

step "the library for other people's images: glibc 2.17, loaded into Debian 11; compiled for aarch64"
portable=0
VCUDA="$VCUDA_TEST_BUILD/vcuda" scripts/old-userland.sh >target/old-userland.log 2>&1 || portable=$?
case $portable in
0) grep -E "^(check-shim|old-userland):" target/old-userland.log ;;
77) skip "old userlands: $(tail -n 1 target/old-userland.log)" ;;
*) cat target/old-userland.log && exit 1 ;;
esac
if rustup target add aarch64-unknown-linux-gnu >/dev/null 2>&1; then
    cargo check --release --target aarch64-unknown-linux-gnu -p vcuda-shim
else
    skip "aarch64: rustup has no library for it"
fi

step "tests"
scripts/run-tests.py

step "interleavings of the ledger, the slots, the account and the queue (loom); beside it undefined behaviour (miri), then fuzzing"
RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test --release -p vcuda-region -p vcuda-limiter --lib loom >target/loom.log 2>&1 &
loom=$!
# Nothing of it is left to run if another of them fails.
trap 'kill "$loom" 2>/dev/null || true' EXIT
rustup component add --toolchain nightly miri rust-src >/dev/null 2>&1 || true
if cargo +nightly miri --version >/dev/null 2>&1; then
    MIRIFLAGS="-Zmiri-disable-isolation" CARGO_TARGET_DIR=target/miri \
        cargo +nightly miri test -p vcuda-region -p vcuda-limiter --lib -- account:: ledger:: slots:: seqlock::
else
    skip "miri: no nightly toolchain with the miri component"
fi

# Limits, usage and what users type, 10 s each.
fuzzed=0
scripts/fuzz.sh 10 >target/fuzz.log 2>&1 || fuzzed=$?
case $fuzzed in
0) grep -E "^(==|Done)" target/fuzz.log ;;
77) skip "fuzzing: $(tail -n 1 target/fuzz.log)" ;;
*) cat target/fuzz.log && exit 1 ;;
esac
wait "$loom" || { cat target/loom.log; exit 1; }
grep -E "^test result" target/loom.log

step "the chart on a real node of Kubernetes"
kubernetes=0
if [ -n "${VCUDA_KUBERNETES:-}" ]; then
    VCUDA_PROGRAMS=$VCUDA_TEST_BUILD scripts/kubernetes-e2e.sh "$VCUDA_KUBERNETES" --only two-pods --only resize --only requests \
        --only kinds --only leaked >target/kubernetes.log 2>&1 || kubernetes=$?
    [ $kubernetes = 0 ] || { cat target/kubernetes.log; exit 1; }
    sed -n '/^| /p' target/kubernetes.log
else
    skip "a real node of Kubernetes: VCUDA_KUBERNETES names no folder with its programs (scripts/kubernetes-node.sh)"
fi

step "done"
if [ -s "$VCUDA_TEST_SKIPS" ]; then
    echo "skipped, with the reasons:"
    sort -u "$VCUDA_TEST_SKIPS"
fi
echo "$(sort -u "$VCUDA_TEST_SKIPS" | wc -l) skipped, everything else passed, in $((SECONDS - started)) s"
