# Stage "bench": the tables of `vcuda bench`, for docs/evidence.md.
# shellcheck shell=bash disable=SC2154

stage_bench() {
    local table quick=()
    [ -z "$simulated" ] || quick=(--sim --quick)
    for table in overhead alone split changes; do
        if limited 200 "$results/bench-$table.json" "$vcuda" bench "${quick[@]}" --only $table --json; then
            row measured "vcuda bench --only $table" "$(wc -c <"$results/bench-$table.json") bytes of JSON"
        else
            row not-measured "vcuda bench --only $table" "$(first_words "$results/bench-$table.json")"
        fi
    done
}
