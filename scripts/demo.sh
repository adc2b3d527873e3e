#!/usr/bin/env bash
# Builds vcuda and shows two tenants sharing a GPU: a real one where there is one, else the simulated one.
# Works without a terminal; exit status 1 if one of the checks in its summary fails.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v cargo >/dev/null || { echo "demo: no cargo: install the Rust toolchain (rustup) first" >&2; exit 69; }
# Only what is shown, and what a manager needs to suspend a tenant, in one build, so that no dependency is compiled twice. The
# profile differs from a release in optimisation alone: the checks are the same, a hooked call costs more than docs/evidence.md says.
cargo build --profile demo --lib --bin vcuda --bin vcuda-bench --bin vcuda-manager --bin vcuda-checkpoint \
    -p vcuda-shim -p vcuda-cli -p vcuda-bench -p vcuda-manager -p vcuda-simulator -p vcuda-simulator-nvml
exec "${CARGO_TARGET_DIR:-target}/demo/vcuda" demo "$@"
