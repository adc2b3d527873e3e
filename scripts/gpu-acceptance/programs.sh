# Stage "programs": the conformance programs by every entry point, quotas to the byte, the hook table, and developers' tools.
# PROGRAMS="vmm-DLSYM pool-LINK": only these programs.
# shellcheck shell=bash disable=SC2154

stage_programs() {
    local program
    if [ -n "${PROGRAMS-}" ]; then
        for program in $PROGRAMS; do both "$program" 60 "--memory 8GiB --cores 90" "$dir/apps/$program"; done
        return
    fi
    tools
    for program in "$dir"/apps/quota-*; do
        tenant_run "$(basename "$program")" 60 "--memory 4GiB" "$program" 4294967296 && row same "$(basename "$program")" "4 GiB to the byte"
    done
    doors
    # An expectation that fails without the shim too is the driver's answer to a question of docs/hardware.md,
    # last part.
    for program in "$dir"/apps/*; do
        case $(basename "$program") in quota-* | doors-*) continue ;; esac
        both "$(basename "$program")" 60 "--memory 8GiB --cores 90" "$program"
    done
}
# Every entry point leads every row of the hook table that this driver has to the shim. Which of its names are one function,
# and which it lacks, the run without the shim says.
doors() {
    [ -s "$dir/doors.table" ] || { row skipped doors "not packed"; return; }
    limited 60 "$results/doors.bare" "${bare[@]}" "$dir/apps/doors-DLSYM" "$dir/doors.table"
    awk 'FNR == NR { if ($1 == "TWIN") twin[$2] = $3; if (/^FAIL dlsym of .* is \(none\)$/) lacking[$4] = 1; next }
         !($1 in lacking) { print $1, $2, $3, $4, ($1 in twin ? twin[$1] : $5) }' "$results/doors.bare" "$dir/doors.table" >"$results/doors.table"
    [ -s "$results/doors.table" ] || { row bare-failed doors "$(first_words "$results/doors.bare")"; return; }
    tenant_run doors 60 "--memory 1GiB" "$dir/apps/doors-DLSYM" "$results/doors.table" libvcuda_shim.so &&
        row same doors "$(wc -l <"$results/doors.table") of $(wc -l <"$dir/doors.table") names are in this driver"
}
tools() {
    if [ -n "$simulated" ]; then row skipped "compute-sanitizer, ncu" "not simulated"; return; fi
    needs compute-sanitizer &&
        COMPARE="ERROR SUMMARY|passed|FAIL" both compute-sanitizer 120 "--memory 8GiB" compute-sanitizer "$dir/apps/module-DLSYM"
    needs ncu &&
        COMPARE="^ *vcuda_|==ERROR==|No kernels" both ncu 120 "--memory 8GiB" \
            ncu --clock-control none --launch-count 3 "$dir/apps/module-DLSYM"
}
