#!/usr/bin/env bash
# Checks the allowed edges between the project's crates, and that nothing heavy enters the shim.
set -euo pipefail
cd "$(dirname "$0")/.."

declare -A allowed=(
    [vcuda-driver-api]=""
    [vcuda-driver-open]="vcuda-driver-api"
    [vcuda-quota]=""
    [vcuda-limiter]="vcuda-quota"
    [vcuda-region]="vcuda-quota vcuda-limiter"
    [vcuda-shim]="vcuda-driver-api vcuda-quota vcuda-limiter vcuda-region"
    [vcuda-machine]=""
    [vcuda-clock]=""
    [vcuda-clock-preload]="vcuda-clock"
    [vcuda-simulator]="vcuda-driver-api vcuda-machine"
    [vcuda-simulator-nvml]="vcuda-driver-api vcuda-machine"
    [vcuda-cdi]=""
    [vcuda-daemon]="vcuda-quota"
    [vcuda-manager]="vcuda-cdi vcuda-daemon vcuda-driver-api vcuda-driver-open vcuda-limiter vcuda-quota vcuda-region vcuda-manager-api"
    [vcuda-manager-api]="vcuda-quota"
    [vcuda-kubelet-api]=""
    [vcuda-plugin]="vcuda-cdi vcuda-daemon vcuda-kubelet-api vcuda-quota vcuda-manager-api"
    [vcuda-cluster]="vcuda-daemon vcuda-quota"
    [vcuda-kubernetes]="vcuda-cluster vcuda-daemon vcuda-plugin"
    [vcuda-figures]=""
    [vcuda-cli]="vcuda-driver-api vcuda-driver-open vcuda-quota vcuda-region vcuda-machine vcuda-manager-api"
    [vcuda-bench]="vcuda-cli vcuda-driver-api vcuda-driver-open vcuda-quota vcuda-limiter vcuda-region vcuda-machine vcuda-manager-api vcuda-figures"
    [vcuda-tests]="vcuda-driver-api vcuda-quota vcuda-limiter vcuda-region vcuda-machine vcuda-clock vcuda-benches vcuda-manager vcuda-manager-api vcuda-kubelet-api"
    [vcuda-benches]="vcuda-cli vcuda-driver-api vcuda-quota vcuda-limiter vcuda-region vcuda-machine vcuda-clock vcuda-manager-api vcuda-figures"
)
failed=0
members=$(cargo metadata --format-version 1 --no-deps | python3 -c 'import json, sys
for p in json.load(sys.stdin)["packages"]: print(p["name"])')
for crate in $members; do
    if [[ ! -v "allowed[$crate]" ]]; then
        echo "check-deps: $crate has no line in $0: add one with the crates it may use"
        failed=1
        continue
    fi
    edges=$(cargo tree -e normal --depth 1 --prefix none -p "$crate" | tail -n +2 | awk '/^vcuda-/ {print $1}' | sort -u)
    for edge in $edges; do
        if [[ " ${allowed[$crate]} " != *" $edge "* ]]; then
            echo "check-deps: $crate depends on $edge; allowed: ${allowed[$crate]:-none}"
            failed=1
        fi
    done
done
# Everything that ends up in an application's process, by name.
light="vcuda-shim vcuda-driver-api vcuda-quota vcuda-limiter vcuda-region libc once_cell parking_lot parking_lot_core lock_api scopeguard smallvec cfg-if"
for crate in $(cargo tree -e normal --prefix none -p vcuda-shim | awk '{print $1}' | sort -u); do
    if [[ " $light " != *" $crate "* ]]; then
        echo "check-deps: $crate would be loaded into every application; allowed there: $light"
        failed=1
    fi
done
# The shim calls the driver through one list, which keeps it from breaking captures; the other caller passes the application's
# own calls on (shim/src/driver/relaxed.rs).
callers() { grep -rlE "$1" shim/src | LC_ALL=C sort | paste -sd' '; }
only_in() {
    [ "$(callers "$1")" = "$2" ] && return
    echo "check-deps: driver functions are called ($1) in: $(callers "$1"); allowed: $2"
    failed=1
}
only_in 'call_through!' "shim/src/driver/real/own.rs shim/src/hooks/table.rs"
only_in '(own_call|as_it_is|relaxed)!' "shim/src/driver/real/own.rs"
[ "$failed" = 0 ] && echo "check-deps: every edge is allowed"
exit "$failed"
