# Stage "tenant": shares by fixed work, and what nvidia-smi shows.
# shellcheck shell=bash disable=SC2154

stage_tenant() {
    nvidia_smi "$dir/hardware"
    shares "$dir/hardware"
    wide "$dir/hardware"
    several "$dir/hardware"
    uneven "$dir/hardware"
}

# Duration of a measurement.
seconds=$([ -n "$simulated" ] && echo 3 || echo 5)

# Fixed work in a tenant with that cap. What was done is judged once all have run: only if the rate alone was the same before
# and afterwards does it say anything.
share() { # NAME CAP HOW
    tenant_run "$1" $((seconds + 20)) "--memory 8GiB --cores $2" "$dir/hardware/shares" "$seconds" "$iterations" "$3"
}
shares() {
    local hw=$1 cap how one
    measure calibrate 30 "$hw/shares" calibrate 1000 || return
    iterations=$(figure calibrate.bare iterations)
    # "stream's context", "green contexts": the cap holds whatever context is current.
    for how in own other kernel green graph; do share "share-10-$how" 10 $how; done
    for cap in 30 60 90; do share "share-$cap" $cap own; done
    # "turns between contexts": two tenants at once
    limited $((seconds + 20)) "$results/together-30.tenant" "${tenant[@]}" --memory 8GiB --cores 30 -- "$hw/shares" "$seconds" "$iterations" &
    one=$!
    share together-60 60 own
    wait $one || row differs together-30 "status $? as a tenant: $(first_words "$results/together-30.tenant")"
    bare_run alone-again 30 "$hw/shares" "$seconds" "$iterations" || return
    is_steady || return
    for how in own other kernel green graph; do judge "share-10-$how" 10 10; done
    for cap in 30 60 90; do judge "share-$cap" $cap 5; done
    judge together-30 30 10
    judge together-60 60 10
}
# As `shares`, with kernels that fill the GPU.
wide() {
    local hw=$1 one
    measure calibrate-wide 30 "$hw/shares" calibrate 1000 wide || return
    iterations=$(figure calibrate-wide.bare iterations)
    share wide-10 10 wide
    share wide-50 50 wide
    limited $((seconds + 20)) "$results/wide-together-30.tenant" "${tenant[@]}" --memory 8GiB --cores 30 -- "$hw/shares" "$seconds" "$iterations" wide &
    one=$!
    share wide-together-60 60 wide
    wait $one
    alone=$(figure calibrate-wide.bare alone_per_second)
    judge wide-10 10 10
    judge wide-50 50 5
    judge wide-together-30 30 10
    judge wide-together-60 60 10
}
# Kernels of one function and grid whose times differ 400 times.
uneven() {
    measure calibrate-uneven 30 "$1/shares" calibrate 1000 || return
    iterations=$(figure calibrate-uneven.bare iterations)
    bare_run uneven-alone 30 "$1/shares" "$seconds" "$iterations" uneven || return
    alone=$(figure uneven-alone.bare kernels_per_second)
    share uneven-10 10 uneven
    share uneven-30 30 uneven
    share uneven-60 60 uneven
    judge uneven-10 10 10
    judge uneven-30 30 5
    judge uneven-60 60 5
}
# A tenant of several processes, with kernels of these lengths (us), beside a tenant with a single process.
several() {
    measure calibrate-several 30 "$1/shares" calibrate 1000 || return
    iterations=$(figure calibrate-several.bare iterations)
    alone=$(figure calibrate-several.bare alone_per_second)
    beside_several "$1" 50 50 1883 276 136
    beside_several "$1" 30 70 1000 1000 1000 1000
}
beside_several() { # PROGRAMS CAP NEIGHBOURS_CAP KERNEL_US...
    local hw=$1 cap=$2 neighbours=$3 name=$2-beside-$3 one
    shift 3
    limited $((seconds + 20)) "$results/several-$name.tenant" "${tenant[@]}" --memory 8GiB --cores "$cap" -- sh -c \
        "for us in $*; do $hw/shares $((seconds + 2)) \$(($iterations * us / 1000)) & done; wait" &
    one=$!
    sleep 1
    share "beside-several-$name" "$neighbours" own
    wait $one
    judge "beside-several-$name" "$neighbours" 10
}
# Sets `alone`, kernels a second without the shim.
is_steady() {
    local first second
    first=$(figure calibrate.bare alone_per_second)
    second=$(figure alone-again.bare kernels_per_second)
    # shellcheck disable=SC2034 # judge and the other stages read it
    alone=$(awk -v a="$first" -v b="$second" 'BEGIN {print (a + b) / 2}')
    awk -v a="$first" -v b="$second" 'BEGIN {exit !((a - b) ^ 2 <= (0.03 * a) ^ 2)}' ||
        { row not-measured "shares" "alone $first kernels/s before, $second afterwards: this machine is too busy"; return 1; }
}
# What a tenant of 4 GiB sees beside one that holds 1 GiB. "nvidia-smi's list"
nvidia_smi() {
    local neighbour
    if [ -n "$simulated" ]; then row skipped nvidia-smi "not simulated: tests/tests/programs/real_binaries.rs runs Debian's"; return; fi
    needs nvidia-smi || return
    "${tenant[@]}" --memory 8GiB -- "$1/deaths" hold >"$work/neighbour" 2>&1 &
    neighbour=$!
    for _ in $(seq 100); do grep -q holding "$work/neighbour" && break; sleep 0.1; done
    both nvidia-smi-L 60 "--memory 4GiB" nvidia-smi -L
    # shellcheck disable=SC2016
    tenant_run nvidia-smi-memory 60 "--memory 4GiB" bash -c \
        'echo "total $(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits) MiB"; echo "used $(nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits) MiB"'
    expect nvidia-smi-memory.tenant total 4096 4096
    expect nvidia-smi-memory.tenant used 0 4096
    tenant_run nvidia-smi-list 60 "--memory 4GiB" nvidia-smi &&
        row measured "nvidia-smi lists the neighbour" "$(grep -c "[^0-9]${neighbour}[^0-9]" "$results/nvidia-smi-list.tenant") times"
    seen_by_vcuda
    kill $neighbour
    wait $neighbour 2>/dev/null
}
# What vcuda itself says of this GPU, its sensors and the neighbour.
seen_by_vcuda() {
    measure vcuda-smi 30 "$vcuda" smi
    measure vcuda-smi-json 30 "$vcuda" smi --json
    measure vcuda-smi-q 30 "$vcuda" smi -q
    measure vcuda-doctor 60 "$vcuda" doctor
}
