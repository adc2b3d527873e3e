# Stage "peers": the same programs with the limits of HAMi-core and with ours, in turn. HAMI_CORE names its libvgpu.so, built
# from its sources with their build.sh; without it the stage is skipped.
# shellcheck shell=bash disable=SC2154

stage_peers() {
    [ -s "${HAMI_CORE-}" ] || { row skipped peers "HAMI_CORE names no library"; return; }
    [ -n "$simulated" ] || needs nvidia-smi || return
    mkdir -p /tmp/vgpulock
    peer_shares "$dir/hardware"
    peer_memory "$dir/hardware"
    peer_kills "$dir/hardware"
    peer_calls "$dir/hardware"
}
# peer_run NAME SECONDS MIB CORES COMMAND...: into NAME.peer, as a container of its own with these limits
peer_run() {
    local name=$1 status
    mkdir -p "$work/peer/$name"
    limited "$2" "$results/$name.peer" "${bare[@]}" env LD_PRELOAD="$HAMI_CORE" LIBCUDA_LOG_LEVEL=0 CUDA_DEVICE_MEMORY_LIMIT="$3m" \
        CUDA_DEVICE_SM_LIMIT="$4" CUDA_DEVICE_MEMORY_SHARED_CACHE="$work/peer/$name/cache" "${@:5}"
    status=$?
    [ $status = 0 ] || row measured "$name, HAMi-core" "status $status: $(first_words "$results/$name.peer")"
}
# Both beside each other in a row of the table.
compare() { # NAME FIGURE UNIT
    row measured "$1" "vcuda $(figure "$1.tenant" "$2") $3, HAMi-core $(figure "$1.peer" "$2") $3"
}
peer_share() { # NAME CAP HOW
    tenant_run "$1" 30 "--memory 8GiB --cores $2" "$dir/hardware/shares" 6 "$iterations" "$3"
    peer_run "$1" 30 8192 "$2" "$dir/hardware/shares" 6 "$iterations" "$3"
    peer_judge "$1"
}
peer_judge() {
    local kind
    for kind in tenant peer; do
        awk -v r="$(figure "$1.$kind" kernels_per_second)" -v a="$alone" 'BEGIN {printf "share_of_fixed_work %.2f %%\n", 100 * r / a}' >>"$results/$1.$kind"
    done
    compare "$1" share_of_fixed_work %
}
peer_shares() {
    local hw=$1 cap one
    measure peer-calibrate 30 "$hw/shares" calibrate 1000 || return
    iterations=$(figure peer-calibrate.bare iterations)
    alone=$(figure peer-calibrate.bare alone_per_second)
    peer_share peer-30 30 own
    measure peer-calibrate-wide 30 "$hw/shares" calibrate 1000 wide || return
    iterations=$(figure peer-calibrate-wide.bare iterations)
    alone=$(figure peer-calibrate-wide.bare alone_per_second)
    for cap in 10 30 60; do peer_share peer-wide-$cap $cap wide; done
    limited 30 "$results/peer-together-30.tenant" "${tenant[@]}" --memory 8GiB --cores 30 -- "$hw/shares" 6 "$iterations" wide &
    one=$!
    tenant_run peer-together-60 30 "--memory 8GiB --cores 60" "$hw/shares" 6 "$iterations" wide
    wait $one
    peer_run peer-together-30 30 8192 30 "$hw/shares" 6 "$iterations" wide &
    one=$!
    peer_run peer-together-60 30 8192 60 "$hw/shares" 6 "$iterations" wide
    wait $one
    peer_judge peer-together-30
    peer_judge peer-together-60
}
# Sixteen processes that fill 24 GiB at once: the most that the GPU ever had in use for them.
peer_memory() {
    local fill="for i in \$(seq 16); do $1/fill 64 6 & done; wait"
    watched peer-memory.tenant tenant_run peer-memory 60 "--memory 24GiB" sh -c "$fill"
    watched peer-memory.peer peer_run peer-memory 60 24576 0 sh -c "$fill"
    compare peer-memory most_above_quota MiB
}
# watched FILE COMMAND...: adds to the results what the GPU had at most during it, less the 24 GiB
watched() {
    local file=$1 watch
    shift
    if [ -n "$simulated" ]; then "$@"; return; fi
    nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits -lms 50 >"$work/watched" &
    watch=$!
    "$@"
    kill $watch
    wait $watch 2>/dev/null
    awk 'NR == 1 {idle = $1} $1 > most {most = $1} END {printf "most_above_quota %d MiB\n", most - idle - 24576}' "$work/watched" >>"$results/$file"
}
# Sixteen processes are killed while they start CUDA or allocate; then one more starts in the same container.
peer_kills() {
    local round storm
    for round in 1 2 3; do
        storm="for i in \$(seq 16); do $1/fill 64 20 >/dev/null 2>&1 & pids=\"\$pids \$!\"; done; sleep 1.$((round * 3)); kill -9 \$pids; wait; exec timeout -s KILL 15 $1/fill 64 0"
        tenant_run peer-kills-$round 40 "--memory 24GiB" sh -c "$storm"
        peer_run peer-kills-$round 40 24576 0 sh -c "$storm"
        compare peer-kills-$round first_cuda_ms ms
    done
}
# Launches and allocations a second of 1, 4 and 16 threads, that the limits do not hold.
peer_calls() {
    local name
    measure peer-threads 40 "$1/threads" || return
    tenant_run peer-threads 40 "--memory 16GiB --cores 100" "$1/threads"
    peer_run peer-threads 40 16384 100 "$1/threads"
    for name in {launches,allocations}_of_{1_threads,4_threads,16_threads,2x4_threads}; do
        row measured "threads $name" "bare $(figure peer-threads.bare "$name"), vcuda $(figure peer-threads.tenant "$name"), HAMi-core $(figure peer-threads.peer "$name") a second"
    done
}
