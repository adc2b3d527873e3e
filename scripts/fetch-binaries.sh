#!/usr/bin/env bash
# Unpacks NVIDIA's own driver libraries and nvidia-smi of each release of the driver that Debian has, and nvtop, into
# target/binaries: the tests route look-ups through the real libcuda.so.1 (no GPU is needed for that) and show the simulated
# GPU to the real tools. Nothing is installed, nothing of it is committed or passed on.
#
# One line for what could not be had; ends with 1 then.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
folder=${CARGO_TARGET_DIR:-target}/binaries
failed=0
fetch() { # NAME RELEASE/COMPONENT PACKAGE...
    scripts/fetch-debian.sh "$folder/$1" "$2" amd64 "${@:3}" || { echo "$1: not fetched, see above"; failed=1; }
}
[ "$(uname -m)" = x86_64 ] || { echo "real drivers: fetched for x86-64 alone"; exit 1; }
fetch driver-470 bullseye/non-free libcuda1 libnvidia-ml1 nvidia-smi
fetch driver-535 bookworm/non-free libcuda1 libnvidia-ml1 nvidia-smi
fetch driver-550 trixie/non-free libcuda1 libnvidia-ml1 nvidia-smi
fetch driver-555 experimental/non-free libcuda1 libnvidia-ml1 nvidia-smi
fetch nvtop bookworm/contrib nvtop
exit $failed
