#!/usr/bin/env bash
# Runs every test of the project: needs git, a C compiler, Python 3 and the Rust toolchain; no GPU. What the tests use
# beyond that is fetched from package registries; what cannot be had is skipped, with the reason, and counted.
# scripts/soak.sh holds the long proofs.
#
# Most tests wait for processes. What only computes runs beside them, at the lowest priority.
set -euo pipefail
# Each job in the background gets a process group: nothing of it is left to run if another part fails.
set -m
cd "$(dirname "$0")/.."
started=$SECONDS
mkdir -p target
export VCUDA_TEST_SKIPS="$PWD/target/skipped.txt"
: >"$VCUDA_TEST_SKIPS"
skip() { echo "SKIPPED $*" | tee -a "$VCUDA_TEST_SKIPS"; }
step() { printf '\n== %s (%d s)\n' "$*" $((SECONDS - started)); }

declare -A jobs=()
trap 'for job in "${jobs[@]}"; do kill -- "-$job" 2>/dev/null || true; done' EXIT
# begin NAME COMMAND...: runs it in the background; what it prints goes to target/NAME.log
begin() {
    "${@:2}" >"target/$1.log" 2>&1 </dev/null &
    jobs[$1]=$!
}
# end NAME WHAT PATTERN: waits for a job, and prints the lines of its log that match. Status 77: something that it needs
# cannot be had, and its last line says what.
end() {
    local status=0
    wait "${jobs[$1]}" || status=$?
    unset "jobs[$1]"
    case $status in
    0) grep -E "$3" "target/$1.log" || { echo "$2: no line with $3 in target/$1.log" && exit 1; } ;;
    77) skip "$2: $(tail -n 1 "target/$1.log")" ;;
    *) cat "target/$1.log" && exit 1 ;;
    esac
}

have() {
    case $1 in
    golang-*) [ -e /usr/share/containers/seccomp.json ] ;;
    musl-tools) command -v musl-gcc >/dev/null ;;
    bubblewrap) command -v bwrap >/dev/null ;;
    lib*) dpkg -s "$1" >/dev/null 2>&1 ;;
    *) command -v "$1" >/dev/null ;;
    esac
}
fetch() {
    scripts/fetch-clients.sh || skip "some clients: see target/fetch.log"
    # NVIDIA's own driver libraries, without a GPU.
    scripts/fetch-binaries.sh || skip "some real binaries: see target/fetch.log"
    for package in runc podman strace golang-github-containers-common musl-tools \
        libjemalloc2 libtcmalloc-minimal4 libeatmydata1 faketime bubblewrap busybox lua5.4 tcc fakeroot rpm help2man minisign; do
        have $package || { [ "$(id -u)" = 0 ] && { apt-get update && apt-get install -y --no-install-recommends $package; } >target/apt.log 2>&1; } ||
            skip "$package: not installed and apt-get could not (target/apt.log)"
    done
    # Debian 12's reads no CDI specifications. Unpacked, not installed; the tests say, and count, what they do without.
    for release in trixie sid; do
        scripts/fetch-debian.sh "${CARGO_TARGET_DIR:-target}/containerd/$release" $release "$(dpkg --print-architecture)" containerd ||
            echo "containerd of Debian's $release was not fetched: see target/fetch.log"
    done
    echo "fetched what can be had"
}
step "build; beside it clients from PyPI, real drivers and containerd from Debian, a container runtime, some ordinary programs"
begin fetch fetch
VCUDA_TEST_BUILD=$(scripts/build-tests.sh)
export VCUDA_TEST_BUILD
end fetch "what is fetched" "^SKIPPED|not fetched|^fetched"

step "the built library, the crate edges, the Helm chart, the examples, the smoke test, the packages, the systemd units"
scripts/check-deps.sh
scripts/check-shim.sh
begin built cargo test --workspace --no-run
begin chart scripts/chart.sh "$VCUDA_TEST_BUILD"
end chart "the Helm chart" "^check-chart:"
scripts/check-smoke.sh
begin packages scripts/check-packages.sh "$VCUDA_TEST_BUILD"
end packages "the packages" "^check-packages:"
for units in check-unit run-units; do
    begin $units scripts/$units.sh "$VCUDA_TEST_BUILD"
    end $units "the systemd units" "^$units:"
done
end built "the tests' programs" "Finished"

aarch64() {
    rustup target add aarch64-unknown-linux-gnu || { echo "rustup has no library for it"; exit 77; }
    nice -n 19 cargo check --release --target aarch64-unknown-linux-gnu -p vcuda-shim
}
interleavings() {
    RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom nice -n 19 cargo test --release -p vcuda-region -p vcuda-limiter --lib loom
}
undefined_behaviour() {
    rustup component add --toolchain nightly miri rust-src || true
    cargo +nightly miri --version || { echo "no nightly toolchain with the miri component"; exit 77; }
    MIRIFLAGS="-Zmiri-disable-isolation" CARGO_TARGET_DIR=target/miri \
        nice -n 19 cargo +nightly miri test -p vcuda-region -p vcuda-limiter --lib -- account:: ledger:: slots:: seqlock::
}
step "tests; beside them old userlands, aarch64, interleavings of the ledger, slots, account and queue (loom), undefined behaviour (miri)"
VCUDA="$VCUDA_TEST_BUILD/vcuda" begin old-userland scripts/old-userland.sh
begin aarch64 aarch64
begin loom interleavings
begin miri undefined_behaviour
begin fuzz-build nice -n 19 scripts/fuzz.sh build
scripts/run-tests.py

step "the library for other people's images: glibc 2.17, loaded into Debian 11; compiled for aarch64"
end old-userland "old userlands" "^(check-shim|old-userland):"
end aarch64 "aarch64" "Finished"

step "interleavings (loom), undefined behaviour (miri), fuzzing: limits, usage and what users type, 10 s each"
end loom "loom" "^test result"
end miri "miri" "^test result"
end fuzz-build "fuzzing" "Finished"
begin fuzz scripts/fuzz.sh 10
end fuzz "fuzzing" "^(==|Done)"

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
