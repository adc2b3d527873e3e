#!/usr/bin/env bash
# Judges what the built library adds to a call, in instructions: they repeat. $1: a folder with the built programs
# (scripts/build-tests.sh). Needs valgrind; status 77 with the reason if it cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."
VCUDA_TEST_BUILD=$(realpath "${1:-${VCUDA_TEST_BUILD:-${CARGO_TARGET_DIR:-target}/release}}")
export VCUDA_TEST_BUILD
[ -e "$VCUDA_TEST_BUILD/libvcuda_shim.so" ] || { echo "check-cost: no libvcuda_shim.so in $VCUDA_TEST_BUILD: scripts/build-tests.sh builds it"; exit 1; }
if ! command -v valgrind >/dev/null; then
    [ "$(id -u)" = 0 ] || { echo "SKIPPED check-cost: valgrind is not installed"; exit 77; }
    mkdir -p target
    { apt-get update && apt-get install -y --no-install-recommends valgrind; } >target/valgrind.log 2>&1 ||
        { echo "SKIPPED check-cost: apt-get could not install valgrind (target/valgrind.log)"; exit 77; }
fi
"${CARGO_TARGET_DIR:-target}/debug/cost" --brief --check
echo "check-cost: no call adds more instructions than it may"
