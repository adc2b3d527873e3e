#!/usr/bin/env bash
# Fuzzes the files that a tenant can write and the text that users type: scripts/fuzz.sh [SECONDS PER TARGET] (default 20).
# scripts/fuzz.sh build only builds the targets.
# Begins with fuzz/corpus and with what earlier runs found, which is under fuzz/found; a failure leaves its input under
# fuzz/artifacts. Ends with 77 where the nightly toolchain cannot be had: its last line says so.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-20}
cargo +nightly --version >/dev/null 2>&1 || { echo "no nightly toolchain: rustup toolchain install nightly"; exit 77; }
# The folder of a tenant belongs on a tmpfs: hundreds of them are made each second.
export TMPDIR=${TMPDIR:-/dev/shm}
[ -d "$TMPDIR" ] && [ -w "$TMPDIR" ] || unset TMPDIR
target=$(rustc -vV | sed -n 's/^host: //p')
built=${CARGO_TARGET_DIR:-$PWD/target}/fuzz
# libFuzzer's instrumentation, as `cargo fuzz` switches it on: counters and comparisons of each edge, checks of addresses.
flags="--cfg fuzzing -Cdebug-assertions -Zsanitizer=address -Cpasses=sancov-module"
for option in level=4 inline-8bit-counters pc-table trace-compares; do
    flags+=" -Cllvm-args=-sanitizer-coverage-$option"
done
RUSTFLAGS=$flags CARGO_TARGET_DIR=$built cargo +nightly build --release --manifest-path fuzz/Cargo.toml --target "$target"
[ "$seconds" != build ] || exit 0
for name in limits registration usage uuid; do
    printf '\n== fuzz %s for %s s\n' "$name" "$seconds"
    # What is found goes to the first folder: the corpus changes by commits alone.
    mkdir -p "fuzz/found/$name" "fuzz/artifacts/$name"
    "$built/$target/release/$name" "fuzz/found/$name" "fuzz/corpus/$name" -artifact_prefix="fuzz/artifacts/$name/" \
        -max_total_time="$seconds" -max_len=4096 -timeout=60 -print_final_stats=0
done
