#!/usr/bin/env bash
# Asks a real GPU what docs/hardware.md cannot know without one: each check named there is a line of a stage here. The machine
# needs an NVIDIA driver, bash and Python; no Rust, no network, no CUDA toolkit. No setting of the GPU is changed, and no
# managed memory is asked for beyond what is free.
#
#   scripts/gpu-acceptance.sh pack [--from FOLDER] [--node FOLDER] [OUT.tar.gz]
#       here: what travels: the library for glibc 2.17, the programs for 2.28 and later (default: target/vcuda-gpu.tar.gz). --from: programs built before;
#       --node: for stage container, FOLDER/bin has kubelet, containerd, containerd-shim-runc-v2, ctr and runc
#   scripts/gpu-acceptance.sh run [--only STAGE[/CHECK]] [FOLDER]
#       there: CHECK is a function of the stage's script that takes the folder of programs, as driver/turns. FOLDER is the unpacked archive (default: beside the script, else target/vcuda-gpu.tar.gz unpacked into /tmp)
#   scripts/gpu-acceptance.sh sim [--profile NAME] [--only STAGE] [FOLDER]
#       the same stages on the simulated GPU
#   scripts/gpu-acceptance.sh plan
#       here: what no GPU has answered, then what may be answered otherwise since, the most valuable first (gpu-acceptance/plan.txt), packed
#       into calls of at most STAGE_SECONDS (540), in which each stage ends, too
#
# A table on stdout; all that was printed, and the figures, in ${OUT:-.}/gpu-acceptance-STAGE.tar.gz (at most 16 MiB).
# Status: 0 nothing differs; 1 something does; 3 nothing differs, but something could not be measured; 64 wrong use.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mapfile -t STAGES < <(sed -n '/^[a-z]*  *|/ s/ .*//p' "$here/gpu-acceptance/plan.txt")
STAGE_SECONDS=${STAGE_SECONDS:-540}
ARCHIVE_BYTES=$((16 << 20))
TRAVEL_BYTES=$((64 << 20))
usage() {
    sed -n '2,/^set -/ s/^# \{0,1\}//p' "$0" >&2
    exit 64
}

# ---- pack ----
pack() {
    local root from="" node="" out stage name door cc=(cc) links
    root=$(dirname "$here")
    cd "$root" || exit 1
    [ "${1-}" != --from ] || { from=$(realpath "$2") && shift 2; }
    [ "${1-}" != --node ] || { node=$(realpath "$2") && shift 2; }
    out=$(realpath -m "${1:-${CARGO_TARGET_DIR:-target}/vcuda-gpu.tar.gz}")
    if [ -z "$from" ]; then
        from=$(scripts/release.sh build x86_64 vcuda-shim vcuda-cli vcuda-manager vcuda-bench vcuda-kubernetes vcuda-simulator vcuda-simulator-nvml)
        case $? in
        0) cc=("${CARGO_TARGET_DIR:-target}/release-tools/bin/python3" -m ziglang cc -target x86_64-linux-gnu.2.28) ;;
        77) echo "pack: built for this machine's C library: no zig" >&2
            cargo build --release -p vcuda-shim -p vcuda-cli -p vcuda-manager -p vcuda-bench -p vcuda-kubernetes -p vcuda-simulator -p vcuda-simulator-nvml || exit 1
            from=${CARGO_TARGET_DIR:-target}/release ;;
        *) exit 1 ;;
        esac
        cargo run -q -p vcuda-tests --bin doors_table >target/doors.table || exit 1
    fi
    stage=$(mktemp -d)
    mkdir -p "$stage/apps" "$stage/hardware" "$stage/clients"
    cp "$from"/{vcuda,vcuda-bench,vcuda-manager,vcuda-checkpoint,libvcuda_shim.so,libvcuda_simulator_cuda.so,libvcuda_simulator_nvml.so} "$stage/" || exit 1
    strip "$stage"/vcuda{,-bench,-manager,-checkpoint} 2>/dev/null
    cp -r "$here/gpu-acceptance.sh" "$here/gpu-acceptance" "$stage/"
    cp tests/clients/*.py "$stage/clients/"
    [ ! -e target/doors.table ] || cp target/doors.table "$stage/"
    git rev-parse --short HEAD >"$stage/commit"
    [ -z "$node" ] || pack_node "$node/bin" "$from" || exit 1
    links=$(mktemp -d)
    ln -s "$stage/libvcuda_simulator_cuda.so" "$links/libcuda.so"
    for name in tests/apps/hardware/*.c; do
        "${cc[@]}" -O1 -w -o "$stage/hardware/$(basename "$name" .c)" "$name" -ldl -lpthread || exit 1
    done
    for name in tests/apps/conformance/*.c tests/apps/{quota,fork,doors,suspended}.c; do
        for door in LINK DLSYM PROC; do
            # shellcheck disable=SC2046
            "${cc[@]}" -O1 -w -DVIA_$door -o "$stage/apps/$(basename "$name" .c)-$door" "$name" -ldl -lpthread \
                $([ $door = LINK ] && echo "-L$links -lcuda -Wl,--allow-shlib-undefined") || exit 1
        done
    done
    tar -C "$stage" -czf "$out" . && rm -rf "$stage" "$links"
    travels "$out"
}
# pack_node BIN PROGRAMS: the programs of a node, its image and its scripts, for stage container
pack_node() {
    local name bare
    bare=$(mktemp -d)
    cp "$2/vcuda-kubernetes" "$1"/{kubelet,containerd,containerd-shim-runc-v2,ctr,runc} "$bare/" && strip "$bare"/* || return
    # With a dictionary in which all of them fit, as they share much of their code: 34 MiB in three minutes.
    tar -C "$bare" -c . | xz --x86 --lzma2=preset=9e,dict=192MiB >"$stage/node.tar.xz" && rm -rf "$bare"
    mkdir "$stage/kubernetes"
    cp scripts/kubernetes/{init.sh,lib.sh,containerd.toml,kubelet.yaml} "$stage/kubernetes/"
    printf '[[gpus]]\n' >"$stage/kubernetes/machine.toml"
    cc -O1 -static -o "$stage/pause" scripts/kubernetes/pause.c && scripts/kubernetes/image.py "$stage/pause.tar" localhost/pause:node "$stage/pause=usr/bin/pause" --command /usr/bin/pause
}
# What goes to the other machine: the tracked files and the archive.
travels() {
    local tracked packed
    tracked=$(git ls-files -z | xargs -0 cat 2>/dev/null | wc -c)
    packed=$(stat -c %s "$1")
    printf '%s: %d KiB; with the tracked files %d of %d KiB\n' "$1" $((packed >> 10)) $(((packed + tracked) >> 10)) $((TRAVEL_BYTES >> 10))
    [ $((packed + tracked)) -le $TRAVEL_BYTES ] || { echo "pack: too large to travel" >&2; exit 1; }
}

# ---- plan ----
plan() {
    local check seconds seen paths question why call=1 used=0 rank
    cd "$(dirname "$here")" || exit 1
    while IFS='|' read -r check seconds seen paths question; do
        read -r check seconds seen <<<"$check $seconds $seen"
        # shellcheck disable=SC2086
        if [ "$seen" = never ]; then rank=0 why="never asked"
        elif git diff --quiet "$seen" HEAD -- $paths; then continue
        else rank=1 why="asked at $seen, $(git rev-list --count "$seen..HEAD" -- $paths) commits since"; fi
        echo "$rank|$check|$seconds|$why|$question"
    done < <(grep -v '^#' "$here/gpu-acceptance/plan.txt") | sort -s -n -t '|' -k 1,1 | while IFS='|' read -r _ check seconds why question; do
        [ $((used + seconds)) -le "$STAGE_SECONDS" ] || { call=$((call + 1)) used=0; }
        used=$((used + seconds))
        printf 'call %d, %3d s: run --only %-18s%s (%s)\n' $call "$seconds" "$check" "$question" "$why"
    done
}

# ---- run ----
# Sets `dir`, the folder of the unpacked archive.
find_pack() {
    dir=${1:-$here}
    if [ $# = 0 ] && [ ! -x "$dir/vcuda" ]; then
        local archive
        archive=$(dirname "$here")/target/vcuda-gpu.tar.gz
        [ -e "$archive" ] || { echo "gpu-acceptance: no $archive: 'pack' makes it" >&2; exit 3; }
        dir=/tmp/vcuda-gpu
        rm -rf "$dir" && mkdir -p "$dir" && tar -C "$dir" -xzf "$archive" || exit 3
    fi
    dir=$(realpath "$dir")
    [ -x "$dir/vcuda" ] || { echo "gpu-acceptance: no vcuda in $dir: name the unpacked folder" >&2; exit 64; }
    vcuda=$dir/vcuda
}
# Sets `bare`, `tenant`: what a command is prefixed with. Ends the script with 3 if there is no GPU.
prepare() {
    work=$(mktemp -d /dev/shm/vcuda-acceptance.XXXXXX) || exit 3
    trap 'jobs -p | xargs -r kill 2>/dev/null; sleep 1; rm -rf "$work"' EXIT
    mkdir -p "$work/run" "$work/machine" && chmod 700 "$work/run"
    export PATH=$PATH:/usr/local/cuda/bin XDG_RUNTIME_DIR=$work/run PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
    unset VCUDA_SIM VCUDA_MANAGER
    bare=(env)
    tenant=("$vcuda" run)
    if [ -n "$simulated" ]; then
        export VCUDA_SIM=$work/machine
        [ -z "$profile" ] || echo "profile = \"$profile\"" >"$VCUDA_SIM/machine.toml"
        bare=("$vcuda" sim --)
        tenant+=(--sim)
    fi
    "${tenant[@]}" --memory 1GiB -- true >"$work/first" 2>&1 || { cat "$work/first" >&2; echo "gpu-acceptance: no GPU to measure" >&2; exit 3; }
}
run() {
    local only="" check="" stage
    while [ $# -gt 0 ]; do
        case $1 in
        --only) only=${2-} && shift 2 || usage
            [[ $only != */* ]] || { check=${only#*/} && only=${only%%/*}; } ;;
        --profile) [ -n "$simulated" ] && profile=${2-} && shift 2 || usage ;;
        -*) usage ;;
        *) break ;;
        esac
    done
    [ -z "$only" ] || [[ " ${STAGES[*]} " == *" $only "* ]] || usage
    find_pack "$@"
    prepare
    # shellcheck source=gpu-acceptance/report.sh
    . "$dir/gpu-acceptance/report.sh"
    for stage in "${STAGES[@]}"; do
        [ -z "$only" ] || [ "$stage" = "$only" ] || continue
        # shellcheck source=/dev/null
        . "$dir/gpu-acceptance/$stage.sh"
        begin_stage "$stage${check:+-$check}"
        if [ -z "$check" ]; then "stage_$stage"
        elif declare -F "$check" >/dev/null; then "$check" "$dir/hardware"
        else echo "gpu-acceptance: stage $stage has no check '$check'" >&2; exit 64; fi
        end_stage "$stage${check:+-$check}" "${OUT:-.}"
    done
    exit "$(worst_status)"
}

simulated=""
profile=""
command=${1-}
[ $# = 0 ] || shift
case $command in
pack) pack "$@" ;;
run) run "$@" ;;
sim) simulated=yes && run "$@" ;;
plan) plan ;;
*) usage ;;
esac
