#!/usr/bin/env bash
# What only a real GPU can show. For a machine with an NVIDIA driver, without Rust: takes the built files, runs the same
# programs bare and as a tenant, and prints a table of differences and figures.
#
#   scripts/gpu-acceptance.sh pack OUT.tar.gz    here: release build + compiled test programs + this script
#   scripts/gpu-acceptance.sh [run] [FOLDER]     there: FOLDER is the unpacked archive (default: beside the script)
#   scripts/gpu-acceptance.sh sim [FOLDER]       the same on the simulated GPU, to try the script itself
#
# It changes no setting of the card and asks for no managed memory beyond what is free.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)

pack() {
    local root out stage name door
    root=$(dirname "$here")
    out=$1
    stage=$(mktemp -d)
    cd "$root" || exit 1
    cargo build --release --workspace || exit 1
    mkdir -p "$stage/apps" "$stage/clients"
    cp "${CARGO_TARGET_DIR:-target}"/release/{vcuda,libvcuda_shim.so,libvcuda_simulator_cuda.so,libvcuda_simulator_nvml.so} "$stage/"
    cp "$here/gpu-acceptance.sh" "$stage/"
    cp tests/clients/*.py "$stage/clients/"
    cargo run -q --release -p vcuda-tests --bin doors_table >"$stage/doors.table" || exit 1
    git rev-parse --short HEAD >"$stage/commit"
    ln -s "$(realpath "${CARGO_TARGET_DIR:-target}")/release/libvcuda_simulator_cuda.so" "$stage/libcuda.so"
    for source in tests/apps/conformance/*.c tests/apps/{quota,saturate,hold,fork,doors}.c; do
        name=$(basename "$source" .c)
        for door in LINK DLSYM PROC; do
            cc -O1 -Wno-unused -DVIA_$door -o "$stage/apps/$name-$door" "$source" -ldl -lpthread \
                $([ $door = LINK ] && echo "-L$stage -lcuda -Wl,--allow-shlib-undefined") || exit 1
        done
    done
    rm "$stage/libcuda.so"
    tar -C "$stage" -czf "$out" . && rm -rf "$stage"
    ls -l "$out"
}

differences=0
bare=()      # what a bare run is prefixed with
simulated="" # --sim, to try the script without a GPU
row() { printf '| %-44s | %-10s | %-10s | %s |\n' "$1" "$2" "$3" "$4"; }
# both TITLE QUOTA COMMAND...: bare and as a tenant; both must end with 0
both() {
    local title=$1 quota=$2 alone tenant note=""
    shift 2
    "${bare[@]}" "$@" >/tmp/vcuda-bare.$$ 2>&1 && alone=passed || alone="status $?"
    # shellcheck disable=SC2086
    "$vcuda" run $simulated $quota -- "$@" >/tmp/vcuda-tenant.$$ 2>&1 && tenant=passed || tenant="status $?"
    if [ "$alone" != "$tenant" ] || [ "$alone" != passed ]; then
        differences=$((differences + 1))
        note=$(grep -h -m1 -E 'FAIL|Error|error' /tmp/vcuda-tenant.$$ /tmp/vcuda-bare.$$ | cut -c1-90)
    fi
    [ "$alone" = "status 77" ] && note=$(head -1 /tmp/vcuda-bare.$$)
    row "$title" "$alone" "$tenant" "$note"
    rm -f /tmp/vcuda-bare.$$ /tmp/vcuda-tenant.$$
}
have() { python3 -c "import $1" >/dev/null 2>&1; }

run() {
    local dir program name
    dir=$(realpath "${1:-$here}")
    vcuda=$dir/vcuda
    [ -x "$vcuda" ] || { echo "gpu-acceptance: no vcuda in $dir: unpack what 'pack' made, or name its folder" >&2; exit 64; }
    if [ -n "$simulated" ]; then
        bare=("$vcuda" sim --)
        VCUDA_SIM=$(mktemp -d)/machine
        export VCUDA_SIM
    elif ! "$vcuda" run -- true 2>/dev/null; then
        "$vcuda" run -- true
        exit 69
    fi
    echo "vcuda $(cat "$dir/commit" 2>/dev/null), $(date -u +%F), $(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null || echo 'no nvidia-smi')"
    echo
    row "program" "bare" "tenant" "first difference"
    row "---" "---" "---" "---"
    for program in "$dir"/apps/*; do
        name=$(basename "$program")
        case $name in
        quota-* | saturate-* | hold-* | doors-*) continue ;;
        esac
        both "$name" "--memory 8GiB --cores 90" "$program"
    done
    for program in "$dir"/apps/quota-*; do
        "$vcuda" run $simulated --memory 4GiB -- "$program" 4294967296 >/tmp/vcuda-q.$$ 2>&1 &&
            row "$(basename "$program") 4GiB" "-" passed "" ||
            { differences=$((differences + 1)); row "$(basename "$program") 4GiB" "-" failed "$(grep -m1 FAIL /tmp/vcuda-q.$$)"; }
    done
    doors "$dir"
    rm -f /tmp/vcuda-q.$$
    if command -v nvidia-smi >/dev/null; then
        both "nvidia-smi" "--memory 8GiB" nvidia-smi
        both "nvidia-smi -L" "--memory 8GiB" nvidia-smi -L
    fi
    have pynvml && both "nvidia-ml-py" "--memory 8GiB" python3 "$dir/clients/nvml.py"
    have cuda.bindings.driver && both "cuda-bindings" "--memory 8GiB" python3 "$dir/clients/bindings.py"
    if have torch; then
        both "PyTorch: allocate, OOM survived, training" "--memory 8GiB" python3 "$dir/clients/torch_train.py"
        both "PyTorch: expandable segments" "--memory 8GiB" env PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True \
            python3 "$dir/clients/torch_train.py"
        both "PyTorch: cudaMallocAsync" "--memory 8GiB" env PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync \
            python3 "$dir/clients/torch_train.py"
        both "PyTorch: CUDA graphs" "--memory 8GiB" python3 "$dir/clients/torch_train.py" graph
    fi
    have cupy && both "CuPy" "--memory 8GiB" python3 -c 'import cupy; print(cupy.ones(1000).sum())'
    have jax && both "JAX" "--memory 20GiB" python3 -c 'import jax.numpy as n; print(n.ones(1000).sum())'
    for tool in compute-sanitizer nsys; do
        command -v $tool >/dev/null || continue
        case $tool in
        nsys) both "nsys profile" "--memory 8GiB" nsys profile -o /tmp/vcuda-nsys -f true "$dir/apps/memory-DLSYM" ;;
        *) both "$tool" "--memory 8GiB" $tool "$dir/apps/module-DLSYM" ;;
        esac
    done
    echo
    shares "$dir"
    echo
    bench
    echo
    echo "$differences differences"
    [ "$differences" = 0 ]
}

# Every door leads every row of the hook table that this driver has to the shim; which of its names are one function, and
# which it lacks, the bare run says.
doors() {
    local dir=$1 bare_words=/tmp/vcuda-doors.$$ table=/tmp/vcuda-table.$$ words=/tmp/vcuda-q.$$ note
    "${bare[@]}" "$dir/apps/doors-DLSYM" "$dir/doors.table" >$bare_words 2>&1
    awk 'FNR == NR { if ($1 == "TWIN") twin[$2] = $3; if (/^FAIL dlsym of .* is \(none\)$/) lacking[$4] = 1; next }
         !($1 in lacking) { print $1, $2, $3, $4, ($1 in twin ? twin[$1] : $5) }' $bare_words "$dir/doors.table" >$table
    note="$(wc -l <$table) of $(wc -l <"$dir/doors.table") names are in this driver"
    if [ -s $table ] && "$vcuda" run $simulated --memory 1GiB -- "$dir/apps/doors-DLSYM" $table libvcuda_shim.so >$words 2>&1; then
        row "doors" "-" passed "$note"
    else
        differences=$((differences + 1))
        row "doors" "-" failed "$(grep -m1 FAIL $words || tail -1 $bare_words); $note"
    fi
    rm -f $bare_words $table
}

# Completed 1 ms spins in 4 s against a cap, alone and two at once: the kernel spins on the GPU's own clock.
shares() {
    local dir=$1 cap n pid
    row "1 ms spin kernels, 4 s" "cap %" "share %" ""
    row "---" "---" "---" "---"
    for cap in 10 30 60 90; do
        n=$("$vcuda" run $simulated --cores $cap -- "$dir/apps/saturate-DLSYM" 4 1000000 | awk '/launched/ {print $2}')
        row "alone" "$cap" "$(awk "BEGIN {printf \"%.1f\", ${n:-0} / 40}")" ""
    done
    "$vcuda" run $simulated --cores 30 -- "$dir/apps/saturate-DLSYM" 4 1000000 >/tmp/vcuda-a.$$ &
    pid=$!
    n=$("$vcuda" run $simulated --cores 60 -- "$dir/apps/saturate-DLSYM" 4 1000000 | awk '/launched/ {print $2}')
    wait $pid
    row "together" "30" "$(awk '/launched/ {printf "%.1f", $2 / 40}' /tmp/vcuda-a.$$)" "elapsed work; slices overlap"
    row "together" "60" "$(awk "BEGIN {printf \"%.1f\", ${n:-0} / 40}")" ""
    rm -f /tmp/vcuda-a.$$
}

# The tables of `vcuda bench`, kept in the current folder; BENCH=--quick for less than their five minutes.
bench() {
    # shellcheck disable=SC2086
    if "$vcuda" bench $simulated ${BENCH-} --json --svg vcuda-bench.svg >vcuda-bench.json; then
        echo "vcuda bench: vcuda-bench.json, vcuda-bench.svg"
        sed -n '/"summary"/,$p' vcuda-bench.json
    else
        row "vcuda bench" "-" "status $?" ""
        differences=$((differences + 1))
    fi
}

case ${1:-run} in
pack) pack "$(realpath -m "${2:-vcuda-gpu.tar.gz}")" ;;
run) run "${2:-$here}" ;;
sim) simulated=--sim && BENCH=${BENCH---quick} && run "${2:-$here}" ;;
*) run "$1" ;;
esac
