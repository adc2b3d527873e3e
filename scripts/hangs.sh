#!/usr/bin/env bash
# Whether anything hangs: capture, collectives, forks, kernels that the host feeds; each under a cap, over and over, all at
# once: scripts/hangs.sh [SECONDS] (default 600). Uses the release build; a round that has not ended after two minutes hangs.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
seconds=${1:-600}
release=$(realpath "${CARGO_TARGET_DIR:-target}/release") || exit 1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for app in captures sim_ranks fork_busy sim_persistent; do
    cc -O1 -w -DVIA_DLSYM -o "$dir/$app" tests/apps/$app.c -ldl -lpthread || exit 1
done

# rounds NAME COMMAND...: until the time is over; each on its own simulated GPUs
rounds() {
    local name=$1 end=$((SECONDS + seconds)) count=0 status=0
    shift
    export XDG_RUNTIME_DIR=$dir/$name VCUDA_SIM=$dir/$name/machine
    mkdir -p "$VCUDA_SIM"
    printf '[[gpus]]\nmemory_bytes = "24GiB"\n[[gpus]]\nmemory_bytes = "24GiB"\n' >"$VCUDA_SIM/machine.toml"
    while [ $SECONDS -lt $end ]; do
        timeout -k 5 120 "$@" >"$dir/$name.out" 2>&1 || { status=$?; break; }
        count=$((count + 1))
    done
    case $status in
    0) echo "$name: $count rounds, no hang" ;;
    124 | 137) echo "$name: HANG in round $count: $*" ;;
    *) echo "$name: status $status in round $count: $(tail -n 3 "$dir/$name.out")" ;;
    esac
    return $status
}
# Ranks in two processes of one tenant, and in one thread of one.
ranks() {
    local run=("$release/vcuda" run --sim --cores 30 --name ranks --) other
    "${run[@]}" "$dir/sim_ranks" ncclDevKernel_vcuda_meet 5000 2 0 200000 & other=$!
    "${run[@]}" "$dir/sim_ranks" ncclDevKernel_vcuda_meet 5000 2 1 200000 && wait $other &&
        "${run[@]}" "$dir/sim_ranks" ncclDevKernel_vcuda_meet 5000 2 all 200000
}
export -f ranks
export dir release

tenant=("$release/vcuda" run --sim --cores 30 --name one --)
rounds capture "${tenant[@]}" "$dir/captures" 20 200000 &
rounds collectives bash -c ranks &
rounds fork "${tenant[@]}" "$dir/fork_busy" &
rounds fed "${tenant[@]}" "$dir/sim_persistent" 100 &
failed=0
for job in $(jobs -p); do
    wait "$job" || failed=1
done
exit $failed
