#!/usr/bin/env bash
# Runs every test of the project: needs git, a C compiler, Python 3 and the Rust toolchain; no GPU. What the tests use
# beyond that is fetched from package registries; what cannot be had is skipped, with the reason, and counted.
# scripts/quick.sh is what to run after each change; scripts/deep-checks.sh and scripts/soak.sh hold the long proofs.
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
# begin NAME COMMAND...: runs it in the background; what it prints goes to target/NAME.log, its seconds to target/NAME.time
begin() {
    { TIMEFORMAT="$1: %R s, %U s of processors" && time "${@:2}" >"target/$1.log" 2>&1 </dev/null; } 2>"target/$1.time" &
    jobs[$1]=$!
}
# end NAME PATTERN: waits for a job, and prints the lines of its log that match. Status 77: something that it needs cannot be
# had, and its last line says what.
end() {
    local status=0
    wait "${jobs[$1]}" || status=$?
    unset "jobs[$1]"
    case $status in
    0) grep -E "$2" "target/$1.log" || { echo "$1: no line with $2 in target/$1.log" && exit 1; } ;;
    77) skip "$1: $(grep -v " s of processors$" "target/$1.log" | tail -n 1)" ;;
    *) cat "target/$1.log" && exit 1 ;;
    esac
    tail -n 1 "target/$1.time"
}
# several NAME...: scripts one after the other, each `NAME.sh` with the programs' folder. 77 if one could not be run.
several() {
    local status=0 all=0
    for name; do
        status=0
        scripts/"$name".sh "$VCUDA_TEST_BUILD" >"target/$name.said" 2>&1 || status=$?
        case $status in
        0) cat "target/$name.said" ;;
        77) skip "$name: $(tail -n 1 "target/$name.said")" ;;
        *) cat "target/$name.said" && all=1 ;;
        esac
    done
    return $all
}
# What computes more than it waits, one after the other at the lowest priority: beside the tests, most of which wait.
beside() {
    renice -n 19 $BASHPID >/dev/null
    "$@"
}

step "build; beside it clients from PyPI, real drivers and containerd from Debian, a container runtime, some ordinary programs"
begin fetch-tests scripts/fetch-tests.sh
cargo nextest --version >/dev/null 2>&1 || begin nextest nice cargo install --locked --quiet --debug cargo-nextest
VCUDA_TEST_BUILD=$(scripts/build-tests.sh)
export VCUDA_TEST_BUILD
end fetch-tests "^SKIPPED|not fetched|^fetched"
grep '^SKIPPED' target/fetch-tests.log >>"$VCUDA_TEST_SKIPS" || true
[ ! -v "jobs[nextest]" ] || end nextest "" || exit 1

step "tests; beside them the built library, crate edges, chart, packages, systemd units; what a call costs, old userlands"
begin checks several check-deps check-shim chart check-smoke check-packages check-unit run-units
# At the usual priority: it counts what threads of one program do for each other.
begin cost scripts/check-cost.sh "$VCUDA_TEST_BUILD"
begin old-userland beside env VCUDA="$VCUDA_TEST_BUILD/vcuda" scripts/old-userland.sh
cargo nextest run --workspace

step "what ran beside the tests"
end checks "^check-|^run-units:|^SKIPPED"
end cost "^check-cost"
end old-userland "^(check-shim|old-userland):"

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
