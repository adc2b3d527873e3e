#!/usr/bin/env bash
# Fuzzes the files that a tenant can write and the text that users type: scripts/fuzz.sh [SECONDS PER TARGET] (default 20).
# scripts/fuzz.sh build only builds the targets.
# Begins with fuzz/corpus and with what earlier runs found, which is under fuzz/found; a failure leaves its input under
# fuzz/artifacts. Ends with 77 where the nightly toolchain or cargo-fuzz cannot be had: its last line says which.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-20}
cargo +nightly --version >/dev/null 2>&1 || { echo "no nightly toolchain: rustup toolchain install nightly"; exit 77; }
cargo fuzz --version >/dev/null 2>&1 || cargo install --locked --quiet cargo-fuzz ||
    { echo "cargo-fuzz is not installed and could not be built"; exit 77; }
# The folder of a tenant belongs on a tmpfs: hundreds of them are made each second.
export TMPDIR=${TMPDIR:-/dev/shm}
[ -d "$TMPDIR" ] && [ -w "$TMPDIR" ] || unset TMPDIR
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}/fuzz
if [ "$seconds" = build ]; then
    exec cargo +nightly fuzz build --release
fi
for target in limits registration usage uuid; do
    printf '\n== fuzz %s for %s s\n' "$target" "$seconds"
    # What is found goes to the first folder: the corpus changes by commits alone.
    mkdir -p "fuzz/found/$target"
    cargo +nightly fuzz run --release "$target" "fuzz/found/$target" "fuzz/corpus/$target" -- -max_total_time="$seconds" -max_len=4096 -timeout=5 -print_final_stats=0
done
