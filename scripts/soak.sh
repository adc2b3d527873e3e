#!/usr/bin/env bash
# The long proofs, too long for every commit: scripts/soak.sh [SECONDS PER PART] (default 300).
# Each part ends by itself and fails the script if it fails. Parts that have an end of their own (a number of operations,
# every instruction, every byte) take as long as that takes; of the storms there are as many as fill the time on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-300}
storms=$((seconds > 60 ? seconds / 30 : 2))
part() { printf '\n== %s\n' "$*"; }
repeat() { # repeat COMMAND...: until the time of this part is over
    local end=$((SECONDS + seconds)) rounds=0
    while [ $SECONDS -lt $end ]; do
        "$@" >/tmp/vcuda-soak.$$ 2>&1 || { cat /tmp/vcuda-soak.$$; echo "failed in round $rounds: $*"; exit 1; }
        rounds=$((rounds + 1))
    done
    rm -f /tmp/vcuda-soak.$$
    echo "$rounds rounds"
}
# tests NAME...: those whose names contain one of these
tests() { cargo nextest run --workspace --profile soak "$@"; }
cargo build --release --workspace

part "proptest: many more cases of the ledger, the account, the engine"
PROPTEST_CASES=20000 repeat cargo test -q --release -p vcuda-region -p vcuda-limiter -p vcuda-machine --lib
part "loom: more preemptions"
RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom LOOM_MAX_PREEMPTIONS=4 \
    timeout $((seconds * 4)) cargo test --release -p vcuda-region -p vcuda-limiter --lib loom
part "the engine's commit under SIGKILL and SIGSTOP"
repeat tests -p vcuda-machine
part "the engine: processes killed at random for a minute, books balanced after each"
cargo test --release -q -p vcuda-machine -- --ignored
part "storms: $storms million operations with failures injected, ${storms}000 kills, the simulator's own peak is the judge"
VCUDA_SOAK=$storms tests storm::
part "memory operations at random, with kills, stops and changes of the quota: ${VCUDA_FUZZ_SECONDS:=3600} s"
VCUDA_FUZZ_SECONDS=$VCUDA_FUZZ_SECONDS tests --no-capture memory_fuzz::
part "schedules at random under caps, in virtual time, with kills, stops and changes of the cap: ${VCUDA_FUZZ_SECONDS} s"
VCUDA_FUZZ_SECONDS=$VCUDA_FUZZ_SECONDS tests --no-capture schedule_fuzz::
part "stopped and killed at every instruction of the hooks of memory (stepped)"
VCUDA_SOAK=1 tests stepped::
part "files: every byte changed under running tenants"
VCUDA_SOAK=1 tests flips::
VCUDA_SOAK=1 tests files::
part "fuzzing: limits, usage, what users type"
fuzzed=0
scripts/fuzz.sh "$seconds" || fuzzed=$?
case $fuzzed in
0) ;;
77) echo "SKIPPED: the line above says why" ;;
*) exit 1 ;;
esac
part "forks while every hook is busy, 20000 of them"
VCUDA_SOAK=1 tests forks::
part "the manager killed and started again under load, 100 times"
VCUDA_SOAK=1 tests manager_node::
part "the device plugin registered again within 3 s: kubelet, sockets, plugin, 20 times each"
VCUDA_SOAK=1 tests all_three
part "shares, sharing, conformance, doors"
repeat tests share:: sharing:: conformance:: doors:: hostile::
part "hangs: capture, collectives, forks, kernels that the host feeds, processes that take turns, at once, 10 minutes"
scripts/hangs.sh 600
part "accuracy: the whole sweep in virtual time (docs/evidence.md tells which goals are missed)"
target/release/accuracy
part "mutants of the pure crates, one in fifty"
mutants=0
scripts/mutants.sh 0/50 || mutants=$?
[ $mutants = 0 ] || [ $mutants = 77 ] || exit 1
part "everything of a release: both processors, packages, image, chart, list of parts"
release=0
scripts/release.sh "${CARGO_TARGET_DIR:-target}/soak-dist" || release=$?
[ $release = 0 ] || [ $release = 77 ] || exit 1
part "the library of a release in Debian 11 on aarch64 (qemu)"
ported=0
scripts/old-userland.sh aarch64 || ported=$?
[ $ported = 0 ] || [ $ported = 77 ] || exit 1
part "the demo"
repeat target/release/vcuda demo
echo "soak: all parts passed"
