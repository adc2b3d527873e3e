#!/usr/bin/env bash
# Builds vcuda and shows two tenants sharing a GPU: a real one where there is one, else the simulated one.
# Works without a terminal; exit status 1 if one of the checks in its summary fails.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v cargo >/dev/null || { echo "demo: no cargo: install the Rust toolchain (rustup) first" >&2; exit 69; }
# What an application's process loads is built as it is shipped. The programs beside it, of which only those that are shown,
# without optimisation across crates: all of them with it take more than twice as long.
cargo build --release -p vcuda-shim
CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
    cargo build --release -p vcuda-cli -p vcuda-bench -p vcuda-manager -p vcuda-simulator -p vcuda-simulator-nvml
exec "${CARGO_TARGET_DIR:-target}/release/vcuda" demo "$@"
