#!/usr/bin/env bash
# Builds vcuda and shows two tenants sharing a GPU: a real one where there is one, else the simulated one.
# Works without a terminal; exit status 1 if one of the checks in its summary fails.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v cargo >/dev/null || { echo "demo: no cargo: install the Rust toolchain (rustup) first" >&2; exit 69; }
cargo build --release --workspace
exec "${CARGO_TARGET_DIR:-target}/release/vcuda" demo "$@"
