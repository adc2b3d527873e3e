# Stage "manager": grants on this GPU; work that keeps its share while the manager is killed; the memory of a killed tenant; the
# demo.
# shellcheck shell=bash disable=SC2154

# shellcheck disable=SC2119 # without options
stage_manager() {
    local manager web batch
    [ -x "$dir/vcuda-manager" ] || { row skipped manager "not packed"; return; }
    measure calibrate 30 "$dir/hardware/shares" calibrate 1000 || return
    iterations=$(figure calibrate.bare iterations)
    start_manager
    asked grants bash -c "'$vcuda' grant create web --memory 4GiB --cores 30 && '$vcuda' grant create batch --memory 8GiB --cores 50 &&
        '$vcuda' grant create lone --memory 1GiB --cores 10 --policy burst"
    asked gpu-list "$vcuda" gpu list
    asked doctor "$vcuda" doctor
    asked smi "$vcuda" smi
    asked metrics python3 -c 'import urllib.request as u; print(u.urlopen("http://127.0.0.1:19400/metrics").read().decode())'
    granted web 6 &
    web=$!
    granted batch 6 &
    batch=$!
    sleep 3
    kill -9 "$manager"
    sleep 1
    start_manager
    wait $web $batch
    granted lone 4
    bare_run alone-again 30 "$dir/hardware/shares" 3 "$iterations"
    # shellcheck disable=SC2034 # judge reads it
    alone=$(figure alone-again.bare kernels_per_second)
    judge web 30 10
    judge batch 50 10
    judge lone 100 5
    killed_tenant
    asked events "$vcuda" events
    kill "$manager"
    bare_run demo 120 "$vcuda" demo ${simulated:+--sim} --svg "$results/demo.svg" && row same demo "all checks hold"
}
# start_manager [OPTION...]: in the background; sets `manager`.
# shellcheck disable=SC2120 # suspension.sh gives options
start_manager() {
    local options=("$@" --root "$XDG_RUNTIME_DIR/vcuda" --state "$work/state" --metrics 127.0.0.1:19400)
    [ -z "$simulated" ] || options+=(--nvml-library "$dir/libvcuda_simulator_nvml.so" --cuda-library "$dir/libvcuda_simulator_cuda.so")
    "$dir/vcuda-manager" "${options[@]}" >>"$results/manager.log" 2>&1 &
    manager=$!
    for _ in $(seq 100); do "$vcuda" gpu list >/dev/null 2>&1 && return; sleep 0.1; done
    row differs manager "does not answer: $(tail -n 1 "$results/manager.log" | cut -c1-80)"
}
# asked NAME COMMAND...: a command of the operator's that must succeed
asked() {
    limited 30 "$results/$1.asked" "${@:2}" && row same "$1" "status 0" || row differs "$1" "$(first_words "$results/$1.asked")"
}
# granted NAME SECONDS: fixed work under that grant
granted() {
    VCUDA_LOG=$results/$1.log limited $(($2 + 20)) "$results/$1.tenant" "$vcuda" run ${simulated:+--sim} --grant "$1" -- \
        "$dir/hardware/shares" "$2" "$iterations" own || row differs "$1" "$(first_words "$results/$1.tenant")"
}
# A process with 512 MiB that is killed: its grant's use is 0 again.
killed_tenant() {
    local held before after
    "$vcuda" run ${simulated:+--sim} --grant web -- "$dir/hardware/deaths" hold >"$work/held" 2>&1 &
    held=$!
    for _ in $(seq 100); do grep -q holding "$work/held" && break; sleep 0.1; done
    before=$(web_used)
    kill -9 $held
    for _ in $(seq 50); do after=$(web_used); [ "$after" != 0 ] || break; sleep 0.1; done
    printf 'before %s bytes\nafter %s bytes\n' "$before" "$after" >"$results/killed.tenant"
    expect killed.tenant before 536870912 4294967296
    expect killed.tenant after 0 0
}
web_used() {
    "$vcuda" smi --json | python3 -c '
import json, sys
print(sum(t["memory_used_bytes"] for g in json.load(sys.stdin)["gpus"] for t in g["tenants"] if t["name"].startswith("web")))'
}
