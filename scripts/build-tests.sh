#!/usr/bin/env bash
# Builds all tests and what they run, puts the latter into a folder and prints that. After a change:
#   export VCUDA_TEST_BUILD=$(scripts/build-tests.sh); cargo nextest run --workspace quota::
# With `quick` only what they run, with no benches, and the library that an application's process loads is a dev build, too: a minute
# sooner, and with all its assertions. Without, it is built as it is shipped: scripts/check-shim.sh looks at this very file.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=tried shim=release what=(--workspace --tests)
[ "${1-}" != quick ] || { folder=quick shim=debug what=(--workspace --exclude vcuda-benches); }
[ $shim = debug ] || cargo build --release -p vcuda-shim >&2
# One build, as cargo compiles a dependency again for each set of features.
cargo build "${what[@]}" --lib --bins >&2
built=$(realpath "${CARGO_TARGET_DIR:-target}")
mkdir -p "$built/$folder"
ln -sf vcuda-kubernetes "$built/$folder/kubectl-vcuda"
ln -f "$built"/$shim/libvcuda_shim.so "$built"/debug/libvcuda_{simulator_cuda,simulator_nvml,virtual_clock}.so \
    "$built"/debug/vcuda{,-bench,-manager,-checkpoint,-kubernetes} "$built/$folder/"
echo "$built/$folder"
