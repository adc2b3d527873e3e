#!/usr/bin/env bash
# Proofs beyond the tests: interleavings of ledger, slots, account and queue (loom), undefined behaviour (miri), fuzzing of limits,
# usage and what users type, 10 s each, and whether it compiles for aarch64. One after the other, at the lowest priority; `.ci/run`
# has them beside the tests.
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

# Last, as it shares the folder of the tests' build. Plugin and webhook, which have nothing of a processor, need a C compiler for
# ring: scripts/release.sh builds them.
if rustup target add aarch64-unknown-linux-gnu; then
    cargo check --quiet --target aarch64-unknown-linux-gnu -p vcuda-shim -p vcuda-manager -p vcuda-cli -p vcuda-simulator
    echo "Done: aarch64"
else
    echo "SKIPPED aarch64: rustup has no library for it"
fi
