#!/usr/bin/env bash
# Proofs beyond the tests, each in a build of its own: interleavings of ledger, slots, account and queue (loom), undefined behaviour
# (miri), fuzzing of limits, usage and what users type, 10 s each. One after the other, at the lowest priority; `.ci/run` has them
# beside the tests.
set -euo pipefail
cd "$(dirname "$0")/.."
renice -n 19 $BASHPID >/dev/null

RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test --release -p vcuda-region -p vcuda-limiter --lib loom

rustup component add --toolchain nightly miri rust-src || true
if cargo +nightly miri --version; then
    MIRIFLAGS="-Zmiri-disable-isolation" CARGO_TARGET_DIR=target/miri \
        cargo +nightly miri test -p vcuda-region -p vcuda-limiter --lib -- account:: ledger:: slots:: seqlock::
    scripts/fuzz.sh 10
else
    echo "SKIPPED undefined behaviour, fuzzing: no nightly toolchain with the miri component"
fi
