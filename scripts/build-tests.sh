#!/usr/bin/env bash
# Builds what tests and benches run, puts it into target/tried and prints that folder. For one test, after each change:
#   export VCUDA_TEST_BUILD=$(scripts/build-tests.sh); cargo test -p vcuda-tests --test quota
set -euo pipefail
cd "$(dirname "$0")/.."
# What an application's process loads is built as it is shipped: scripts/check-shim.sh looks at this very file. The programs
# share what the tests are built from, and its checks of overflows.
cargo build --release -p vcuda-shim -p vcuda-simulator -p vcuda-simulator-nvml -p vcuda-clock-preload >&2
cargo build -p vcuda-cli -p vcuda-bench -p vcuda-manager -p vcuda-plugin -p vcuda-cluster >&2
built=$(realpath "${CARGO_TARGET_DIR:-target}")
mkdir -p "$built/tried"
ln -f "$built"/release/libvcuda_{shim,simulator_cuda,simulator_nvml,virtual_clock}.so \
    "$built"/debug/vcuda{,-bench,-manager,-checkpoint,-device-plugin,-dra-driver,-cluster} "$built"/debug/kubectl-vcuda "$built/tried/"
echo "$built/tried"
