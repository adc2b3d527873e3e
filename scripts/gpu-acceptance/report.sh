# Sourced by gpu-acceptance.sh: runs programs under their time limits, keeps what they print, judges it, counts.
#
# A row of the table is one of:
#   same          as a tenant as without the shim; or a figure within its bounds
#   differs       not so: ours to explain
#   measured      a question to the driver alone: a figure for docs/hardware.md, nothing to judge
#   bare-failed   the program fails without the shim too: this GPU or driver, not ours
#   not-measured  it did not end in time, or the figure is missing
#   skipped       what it needs is not there (a tool, a permission, a feature); "not simulated" on the simulated GPU
# shellcheck shell=bash disable=SC2154

row() { # STATE NAME NOTE
    printf '| %-12s | %-44s | %s |\n' "$1" "$2" "$3" | tee -a "$results/table.md"
}
# How many rows of all stages have that state: counted in the tables, as checks that run side by side write into one.
counted() { cat "$work"/results-*/table.md | grep -c "^| $1 "; }
begin_stage() {
    results=$work/results-$1
    mkdir -p "$results"
    stage_end=$((SECONDS + STAGE_SECONDS))
    {
        echo "stage $1, commit $(cat "$dir/commit" 2>/dev/null), $(date -u +%FT%RZ), ${profile:-${simulated:+simulated}}"
        uname -srm
        command -v nvidia-smi >/dev/null && [ -z "$simulated" ] &&
            timeout 30 nvidia-smi --query-gpu=name,driver_version,memory.total,memory.used,compute_mode,mig.mode.current --format=csv,noheader
    } | tee "$results/about.txt"
    printf '| %-12s | %-44s | %s |\n|---|---|---|\n' state check note | tee "$results/table.md"
}
# One archive; what a single program printed is cut at 4 MiB, and the largest go if it is still too large.
end_stage() {
    local name=$1 out=$2 archive
    archive=$out/gpu-acceptance-$name${profile:+-$profile}.tar.gz
    find "$results" -type f -size +4M -exec truncate -s 4M {} +
    grep -rhE '^[a-z][a-zA-Z0-9_]* -?[0-9.e+]+ [^ ]+$' --include='*.bare' --include='*.tenant' --include='*.peer' "$results" -H |
        sed "s|^$results/||; s|:| |" | sort >"$results/figures.txt"
    while :; do
        tar -C "$work" -czf "$archive" "results-$name"
        [ "$(stat -c %s "$archive")" -gt "$ARCHIVE_BYTES" ] || break
        rm -f "$(find "$results" -type f ! -name figures.txt ! -name table.md -printf '%s %p\n' | sort -n | tail -n 1 | cut -d' ' -f2-)"
    done
    echo "$archive: $(($(stat -c %s "$archive") >> 10)) KiB; so far" \
        "$(for state in same differs measured bare-failed not-measured skipped; do printf '%d %s, ' "$(counted $state)" $state; done)" \
        "$((STAGE_SECONDS - stage_end + SECONDS)) s in this stage"
}
worst_status() {
    if [ "$(counted differs)" -gt 0 ]; then echo 1
    elif [ $(($(counted bare-failed) + $(counted not-measured))) -gt 0 ] || [ $(($(counted same) + $(counted measured))) = 0 ]; then echo 3
    else echo 0; fi
}

# limited SECONDS FILE COMMAND...: its output into FILE; 124 if it did not end, also where the stage's time is over. Where a
# hanging or crashed command stood is in FILE.stacks.
limited() {
    local seconds=$1 file=$2 left=$((stage_end - SECONDS))
    shift 2
    [ "$left" -gt 0 ] || { echo "the stage's time was over" >"$file"; return 124; }
    python3 "$dir/gpu-acceptance/limit.py" "$((seconds < left ? seconds : left))" "$file.stacks" "$@" >"$file" 2>&1 </dev/null
}
first_words() { grep -m1 -hE 'FAIL|rror|skip:|over' "$1" 2>/dev/null | cut -c1-100 || head -n 1 "$1" | cut -c1-100; }
# bare_run NAME SECONDS COMMAND...: into NAME.bare. Makes a row and fails if there is nothing to compare with.
bare_run() {
    local name=$1 status
    limited "$2" "$results/$name.bare" "${bare[@]}" "${@:3}"
    status=$?
    case $status in
    0) return 0 ;;
    77) row skipped "$name" "$(first_words "$results/$name.bare")" ;;
    124) row not-measured "$name" "did not end in $2 s without the shim" ;;
    *) row bare-failed "$name" "status $status: $(first_words "$results/$name.bare")" ;;
    esac
    return 1
}
# tenant_run NAME SECONDS QUOTA COMMAND...: into NAME.tenant, the shim's decisions into NAME.log. Makes a row and fails if it does not end with 0.
tenant_run() {
    local name=$1 status
    # shellcheck disable=SC2086
    VCUDA_LOG=$results/$name.log limited "$2" "$results/$name.tenant" "${tenant[@]}" $3 -- "${@:4}"
    status=$?
    [ $status != 0 ] || return 0
    if [ $status = 77 ]; then row skipped "$name" "$(first_words "$results/$name.tenant")"
    elif [ $status = 124 ] && [ "$SECONDS" -ge "$stage_end" ]; then row not-measured "$name" "the stage's time was over"
    else row differs "$name" "status $status as a tenant: $(first_words "$results/$name.tenant")"; fi
    return 1
}
# measure NAME SECONDS COMMAND...: a question to the driver alone
measure() { bare_run "$@" && row measured "$1" "$(grep -cE '^[a-zA-Z0-9_]+ -?[0-9]' "$results/$1.bare") figures"; }
# What must be equal of two outputs: all but figures, which `expect` and `alike` judge. COMPARE is a pattern to keep instead.
comparable() {
    if [ -n "${COMPARE-}" ]; then grep -E "$COMPARE" "$1"; else grep -vE '^[a-zA-Z0-9_]+ (-|-?[0-9.e+]+) [^ ]+$' "$1"; fi
    true
}
# both NAME SECONDS QUOTA COMMAND...: the same status and the same output
both() {
    local name=$1
    bare_run "$name" "$2" "${@:4}" && tenant_run "$@" || return 1
    if diff <(comparable "$results/$name.bare") <(comparable "$results/$name.tenant") >"$results/$name.diff"; then
        rm "$results/$name.diff"
        row same "$name" "$(tail -n 1 "$results/$name.tenant" | cut -c1-80)"
    else
        row differs "$name" "$(grep -m1 '^[<>]' "$results/$name.diff" | cut -c1-100)"
    fi
}
# figure FILE NAME: its value, nothing if there is none
figure() { awk -v name="$2" '$1 == name {value = $2} END {if (value != "" && value != "-") print value}' "$results/$1" 2>/dev/null; }
# expect FILE FIGURE LOW HIGH: within the bounds. A figure "-" was not to be had: the program says why.
expect() {
    local value reason
    value=$(figure "$1" "$2")
    if [ -z "$value" ]; then
        reason=$(awk -v name="$2" '$1 == name {print $3}' "$results/$1" 2>/dev/null)
        row "$([ -n "$reason" ] && echo skipped || echo not-measured)" "$1 $2" "${reason:-no such figure}"
    elif awk -v v="$value" -v l="$3" -v h="$4" 'BEGIN {exit !(v >= l && v <= h)}'; then
        row same "$1 $2" "$value, within $3 and $4"
    else
        row differs "$1 $2" "$value, not within $3 and $4"
    fi
}
# alike NAME FIGURE PERCENT: the tenant's figure is the bare one, so far
alike() {
    local value
    value=$(figure "$1.bare" "$2")
    [ -n "$value" ] || { row not-measured "$1 $2" "no such figure without the shim"; return; }
    expect "$1.tenant" "$2" "$(awk -v v="$value" -v p="$3" 'BEGIN {d = (v < 0 ? -v : v) * p / 100; print v - d}')" \
        "$(awk -v v="$value" -v p="$3" 'BEGIN {d = (v < 0 ? -v : v) * p / 100; print v + d}')"
}
# judge NAME CAP TOLERANCE: of the rate alone, in percent; the tolerance is in percent of the cap
judge() {
    local rate
    rate=$(figure "$1.tenant" kernels_per_second)
    [ -n "$rate" ] || return # the row says why
    awk -v r="$rate" -v a="$alone" 'BEGIN {printf "share_of_fixed_work %.3f %%\n", 100 * r / a}' >>"$results/$1.tenant"
    expect "$1.tenant" share_of_fixed_work "$(awk -v c="$2" -v t="$3" 'BEGIN {print c * (1 - t / 100)}')" \
        "$(awk -v c="$2" -v t="$3" 'BEGIN {print c * (1 + t / 100)}')"
}
# needs TOOL: whether it is there; a row if not
needs() { command -v "$1" >/dev/null || { row skipped "$1" "not installed"; return 1; }; }
