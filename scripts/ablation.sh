#!/usr/bin/env bash
# Measures the limiter with all of its refinements and without each of them, on simulated drivers of every kind
# (docs/evidence.md). ablation.sh [NAME...]: these alone; "none" is the whole limiter. Some minutes each.
set -euo pipefail
cd "$(dirname "$0")/.."

CARGO_INCREMENTAL=0 cargo build --release --target-dir target/ablation --features vcuda-limiter/ablation \
    -p vcuda-limiter -p vcuda-shim -p vcuda-simulator -p vcuda-simulator-nvml -p vcuda-clock-preload -p vcuda-cli \
    -p vcuda-benches
if [ $# = 0 ]; then
    mapfile -t names < <(sed -n 's/^        (Self::[A-Za-z]*, "\(.*\)"),$/\1/p' crates/limiter/src/refinement.rs)
    set -- none "${names[@]}"
fi
mkdir -p target/ablation/results
for name in "$@"; do
    echo "## without: $name"
    without=$name
    [ "$name" = none ] && without=
    CARGO_TARGET_DIR=target/ablation target/ablation/release/accuracy matrix --without "$without" --json "target/ablation/results/$name.json"
done
