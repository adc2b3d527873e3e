# Stage "driver": what this driver does, asked directly, and what the shim makes of it. Rows of docs/hardware.md in quotes.
# shellcheck shell=bash disable=SC2154

stage_driver() {
    local hw=$dir/hardware
    memory "$hw"
    captures "$hw"
    look_ups "$hw"
    measure foreign 60 "$hw/foreign"
    # "stream's context": what the shim finds out about a stream must hold.
    expect foreign.bare other_stream_get_ctx 0 0
    expect foreign.bare other_stream_ctx_same 1 1
    expect foreign.bare no_context_query 0 0
    expect foreign.bare no_context_elapsed 0 0
    COMPARE="CUresult|boolean" both foreign-as-tenant 60 "--memory 8GiB --cores 50" "$hw/foreign"
    lifetimes "$hw"
    turns "$hw"
    wide_turns "$hw"
    measure costs 60 "$hw/costs"
    # "time of an event": what the shim subtracts, and settles within
    expect costs.bare pair_empty_median 0 50
    expect costs.bare exchange_mode_twice_median 0 5
    measure blocking 60 "$hw/blocking"
    measure queue 30 "$hw/queue"
    contention "$hw"
    starts "$hw"
}

# "listed with 0 bytes", "managed memory", "allocation unit": the driver alone, then what a tenant is charged.
memory() {
    local hw=$1 inside=(unshare --kill-child -pf --mount-proc) place context
    measure nvml_memory 60 "$hw/nvml_memory"
    context=$(figure nvml_memory.bare context_and_module_gpu)
    [ "${context:-0}" != 0 ] || context=$(figure nvml_memory.bare context_and_module_own)
    both charged 60 "--memory 4GiB" "$hw/charged"
    limited 60 "$results/charged-4GiB.tenant" "${tenant[@]}" --memory 4GiB -- "$hw/charged" $((4 << 30)) ||
        row differs charged-4GiB "$(first_words "$results/charged-4GiB.tenant")"
    for place in "" -in-namespace; do
        if [ -n "$place" ]; then
            "${inside[@]}" true 2>/dev/null || { row skipped namespace "unshare -pf --mount-proc is not permitted"; return; }
            limited 60 "$results/nvml_memory$place.bare" "${inside[@]}" "${bare[@]}" "$hw/nvml_memory" &&
                row measured "nvml_memory$place" "$(figure "nvml_memory$place.bare" context_and_module_own || true) bytes of its own"
            limited 60 "$results/charged-4GiB$place.tenant" "${inside[@]}" "${tenant[@]}" --memory 4GiB -- "$hw/charged" $((4 << 30)) ||
                row differs "charged-4GiB$place" "$(first_words "$results/charged-4GiB$place.tenant")"
        fi
        expect "charged-4GiB$place.tenant" used_minus_nvml -2097152 2097152
        expect "charged-4GiB$place.tenant" full_nvml_minus_limit -4294967296 0
        # What a context takes of the GPU, and no less, is what the tenant is charged.
        [ "${context:-0}" = 0 ] || expect "charged-4GiB$place.tenant" used_after_context $((context * 9 / 10)) $((context * 11 / 10))
        expect "charged-4GiB$place.tenant" limit_minus_allocated_and_context 0 67108864
        expect "charged-4GiB$place.tenant" used_when_freed_minus_context -2097152 4194304
        expect "charged-4GiB$place.tenant" managed_300M_charged 314572800 318767104
        expect "charged-4GiB$place.tenant" managed_freed_charged -2097152 2097152
    done
}
# "calls during a capture": in relaxed mode none ends a capture; the shim's own calls do not either.
captures() {
    local ended
    measure capture_calls 60 "$1/capture_calls" with-nvml || return
    ended=$(awk '/_tR_end / && $2 != 0 {print $1}' "$results/capture_calls.bare" | tr '\n' ' ')
    row "$([ -z "$ended" ] && echo same || echo differs)" "captures and relaxed mode" "${ended:-none of the calls ends a capture}"
    row measured "captures and normal mode" "ended by: $(awk '/_cG_tG_end / && $2 != 0 {sub("_cG_tG_end", "", $1); printf "%s ", $1}' "$results/capture_calls.bare")"
    COMPARE="CUresult" both capture_calls-as-tenant 60 "--memory 8GiB --cores 50" "$1/capture_calls" with-nvml
    both capture_neighbour 60 "--memory 8GiB --cores 50" "$1/capture_neighbour"
}
# "look-ups": every name, version and flag
look_ups() {
    bare_run look_ups 60 "$1/lookups" && tenant_run look_ups 60 "--memory 1GiB" "$1/lookups" libvcuda_shim.so || return
    if diff <(comparable "$results/look_ups.bare") <(comparable "$results/look_ups.tenant") >"$results/look_ups.diff"; then
        expect look_ups.tenant hooked_answers 5000 1000000
    else
        row differs look_ups "$(grep -m1 '^[<>]' "$results/look_ups.diff" | cut -c1-100)"
    fi
}
# "exported descriptors", "IPC handles", "end of a process"
lifetimes() {
    measure descriptors 30 "$1/descriptors" && {
        expect descriptors.bare lock_errno 0 0
        expect descriptors.bare seen_locked 1 1
        expect descriptors.bare seen_locked_by_duplicate 1 1
    }
    measure deaths 60 "$1/deaths"
    measure pool_import 30 "$1/pool_import"
    both descriptors-as-tenant 30 "--memory 4GiB" "$1/descriptors"
    both deaths-as-tenant 60 "--memory 4GiB" "$1/deaths"
    both exits 90 "--memory 8GiB --cores 50" "$1/exits" 20
}
# "turns between contexts": one alone, then two and three that begin together
turns() {
    local count n start
    measure pauses 30 "$1/pauses" 300 || return
    for count in 2 3; do
        start=$(($(date +%s) + 8))
        for n in $(seq $count); do
            limited 60 "$results/pauses-$n-of-$count.bare" "${bare[@]}" "$1/pauses" 500 $start &
        done
        wait
        if [ -n "$(figure "pauses-$count-of-$count.bare" events)" ]; then
            row measured "pauses of $count at once" "$(figure "pauses-1-of-$count.bare" pause_median) us, run $(figure "pauses-1-of-$count.bare" run_between_median) us"
        else
            row not-measured "pauses of $count at once" "$(first_words "$results/pauses-$count-of-$count.bare")"
        fi
    done
}
# As `turns`, of two with kernels that fill the GPU: what a switch costs then.
wide_turns() {
    local n start=$(($(date +%s) + 4))
    for n in 1 2; do limited 60 "$results/pauses-wide-$n.bare" "${bare[@]}" "$1/pauses" 500 $start 264 1024 & done
    wait
    row measured "pauses of 2 that fill the GPU" "$(figure pauses-wide-1.bare pause_median) us, run $(figure pauses-wide-1.bare run_between_median) us"
}
# "start of NVML", and many processes at once
starts() {
    measure nvml_costs 30 "$1/nvml_costs"
    # As many as the GPU has GiB, at most fifty: a context takes less than that.
    local gib
    gib=$(awk -v total="$(figure charged.bare total)" 'BEGIN {print int(total / 2 ^ 30)}')
    both starts 120 "--memory ${gib}GiB" "$1/starts" $((gib < 50 ? gib : 50))
}
# What is left of the driver's own rate with many threads: the better of two runs each, in turn.
contention() {
    local name round
    for round in 1 2; do
        measure threads-$round 40 "$1/threads" && tenant_run threads-$round 40 "--memory 16GiB --cores 100" "$1/threads" || return
    done
    for name in {launches,allocations}_of_{1_threads,4_threads,16_threads,2x4_threads}; do
        row measured "threads $name" "$(awk -v a="$(figure threads-1.bare "$name")" -v b="$(figure threads-2.bare "$name")" \
            -v c="$(figure threads-1.tenant "$name")" -v d="$(figure threads-2.tenant "$name")" \
            'BEGIN {w = a > b ? a : b; t = c > d ? c : d; printf "%.0f of %.0f calls/s: %.1f %%", t, w, 100 * t / w}')"
    done
}
