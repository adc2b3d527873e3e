#!/usr/bin/env bash
# Whether anything hangs: capture, collectives, forks, kernels that the host feeds, processes that take turns while some of
# them are stopped and killed; each under a cap, over and over, all at once: scripts/hangs.sh [SECONDS] (default 600). Uses
# the release build; a round that has not ended after two minutes hangs.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
seconds=${1:-600}
release=$(realpath "${CARGO_TARGET_DIR:-target}/release") || exit 1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for app in captures sim_ranks fork_busy sim_persistent saturate; do
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
    "${run[@]}" "$dir/sim_ranks" ncclDevKernel_vcuda_meet 5000 2 1 200000 && wait "$other" &&
        "${run[@]}" "$dir/sim_ranks" ncclDevKernel_vcuda_meet 5000 2 all 200000
}
# Four processes of one tenant: one is stopped for a while, one killed, one stopped for good. The others end by themselves,
# with many more launches than who waits for the bound of a hold (a second) each time.
turns() {
    local run=("$release/vcuda" run --sim --cores 30 --name turns --) all=() at status=0
    for at in 0 1 2 3; do
        "${run[@]}" "$dir/saturate" 6 200000 >"$dir/turns.$at" & all+=($!)
    done
    sleep 1.$((RANDOM % 10)) && kill -STOP "${all[0]}"
    sleep 1.$((RANDOM % 10)) && kill -KILL "${all[1]}"
    sleep 0.$((RANDOM % 10)) && kill -CONT "${all[0]}" && kill -STOP "${all[2]}"
    for at in 0 3; do
        wait "${all[at]}" && [ "$(awk '/^launched/ {print $2}' "$dir/turns.$at")" -gt 200 ] || status=1
    done
    kill -KILL "${all[2]}"
    wait "${all[2]}" || [ "$status" = 0 ] || tail -n 1 "$dir"/turns.?
    return "$status"
}
export -f ranks turns
export dir release

tenant=("$release/vcuda" run --sim --cores 30 --name one --)
rounds capture "${tenant[@]}" "$dir/captures" 20 200000 &
rounds collectives bash -c ranks &
rounds fork "${tenant[@]}" "$dir/fork_busy" &
rounds turns bash -c turns &
rounds fed "${tenant[@]}" "$dir/sim_persistent" 100 &
failed=0
for job in $(jobs -p); do
    wait "$job" || failed=1
done
exit $failed
