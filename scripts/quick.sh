#!/usr/bin/env bash
# What to run after each change: formatting, terms, layers, clippy, the unit tests, and a smoke test of quota, shares, sharing,
# command line and device plugin. scripts/test.sh runs everything.
set -euo pipefail
cd "$(dirname "$0")/.."
started=$SECONDS
step() { printf '\n== %s (%d s)\n' "$*" $((SECONDS - started)); }
cargo nextest --version >/dev/null 2>&1 || cargo install --locked --quiet --debug cargo-nextest
step "formatting, terms, layers"
cargo fmt --all --check
scripts/check-terms.sh
scripts/check-layers.py
step "build"
VCUDA_TEST_BUILD=$(scripts/build-tests.sh quick)
export VCUDA_TEST_BUILD
tests=(--workspace --exclude vcuda-benches --lib --bins --test cli --test gpu_time --test kubernetes --test memory)
cargo nextest run "${tests[@]}" --no-run --cargo-quiet
step "unit tests and smoke test; beside them, as they wait more than they compute, clippy"
cargo nextest run "${tests[@]}" --profile quick >target/quick.log 2>&1 &
running=$!
trap 'kill $running 2>/dev/null || true' EXIT
cargo clippy --workspace --all-targets --quiet -- -D warnings
wait $running || { cat target/quick.log && exit 1; }
grep "Summary" target/quick.log
step "all passed"
