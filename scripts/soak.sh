#!/usr/bin/env bash
# The long proofs, too long for every commit: scripts/soak.sh [SECONDS PER PART] (default 300).
# Each part ends by itself and fails the script if it fails.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-300}
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
cargo build --release --workspace
cargo test --workspace --no-run

part "proptest: many more cases of the ledger, the account, the engine"
PROPTEST_CASES=20000 repeat cargo test -q --release -p vcuda-region -p vcuda-machine --lib
part "loom: more preemptions"
RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom LOOM_MAX_PREEMPTIONS=4 \
    timeout $((seconds * 4)) cargo test --release -p vcuda-region --lib loom
part "the engine's commit under SIGKILL and SIGSTOP"
repeat cargo test -q -p vcuda-machine
part "the engine: processes killed at random for a minute, books balanced after each"
cargo test --release -q -p vcuda-machine -- --ignored
part "quotas: processes killed at random instants, the simulator's own peak is the judge"
repeat cargo test -q -p vcuda-tests --test storm
part "forks while every hook is busy, 20000 of them"
VCUDA_SOAK=1 cargo test -q -p vcuda-tests --test forks
part "shares, conformance, doors"
repeat cargo test -q -p vcuda-tests --test share --test conformance --test doors --test hostile
part "the demo"
repeat target/release/vcuda demo
echo "soak: all parts passed"
