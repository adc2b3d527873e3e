#!/usr/bin/env bash
# Runs every test of the project. Needs git, a C compiler, Python 3 and the Rust toolchain; no GPU.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --release --workspace
cargo test --workspace
